package collective

import (
	"fmt"
	"runtime/debug"
	"testing"
)

// TestARankThatDiesAtAnySystemCallIsNamedByAllOthers: with every algorithm, on one thread and on
// two. No descriptor leaks, even without garbage collection.
func TestARankThatDiesAtAnySystemCallIsNamedByAllOthers(t *testing.T) {
	for i, a := range algorithms {
		closeAll(group(t, fabrics()[1], 2, nil)) // what the runtime keeps for the network
		for _, inline := range []int{0, -1} {
			if raced && (inline == 0) != (i%2 == 0) {
				continue
			}
			t.Run(fmt.Sprintf("%s,inline=%d", a, inline), func(t *testing.T) {
				before := takeCensus(t)
				defer debug.SetGCPercent(debug.SetGCPercent(-1))
				d := death{
					f: fabrics()[1], world: 4, victim: 1 + i%3, tap: tapSockets, n: 700,
					change: settings{a: a, inline: inline, chunk: 1 << 10, streams: 1 + i%2}.apply,
				}
				d.everywhere(t)
				if after, ok := settled(t, count, func(c census) bool { return !c.holdsMore(before) }); !ok {
					t.Errorf("before: %v; after: %v", before, after)
				}
			})
		}
	}
}

// TestARankThatDiesWithinLargeMessagesIsNamedByAllOthers: they are larger than a socket's buffer,
// so that all ranks are in the middle of one.
func TestARankThatDiesWithinLargeMessagesIsNamedByAllOthers(t *testing.T) {
	for _, inline := range []int{0, -1} {
		d := death{
			f: fabrics()[1], world: 3, victim: 1, tap: tapSockets, n: 300_000, stride: 3,
			change: settings{inline: inline, chunk: 4 << 20, streams: 1}.apply,
		}
		d.everywhere(t)
	}
}

// TestARankThatDiesAtAnyStepInSharedMemoryIsNamedByAllOthers: with data that goes through slots,
// and with data that is read in its place. What its counters say stays as it was.
func TestARankThatDiesAtAnyStepInSharedMemoryIsNamedByAllOthers(t *testing.T) {
	for _, world := range []int{2, 3} {
		for _, n := range []int{700, 100_000} {
			t.Run(fmt.Sprintf("%d/%d", world, n), func(t *testing.T) {
				before := takeCensus(t)
				defer debug.SetGCPercent(debug.SetGCPercent(-1))
				d := death{f: fabrics()[2], world: world, victim: world - 2, n: n, steps: true, change: func(*Options) {}}
				if raced && n > 700 {
					d.stride = 5
				}
				d.everywhere(t)
				if after, ok := settled(t, count, func(c census) bool { return !c.holdsMore(before) }); !ok {
					t.Errorf("before: %v; after: %v", before, after)
				}
			})
		}
	}
}
