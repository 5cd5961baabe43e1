package logs

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestTail: the newest lines are kept, each other is counted, and what is kept is bounded.
func TestTail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tail tail
		var all []string
		lost := 0
		for i, n := range rapid.SliceOfN(rapid.IntRange(0, 20_000), 1, 40).Draw(t, "lengths") {
			line := strings.Repeat(string(rune('a'+i%26)), n)
			all = append(all, line)
			lost += tail.add(line)
		}
		if tail.lost != lost || lost+len(tail.lines) != len(all) {
			t.Fatalf("%d are kept and %d lost (%d by Add), of %d", len(tail.lines), tail.lost, lost, len(all))
		}
		size := 0
		for i, line := range tail.lines {
			if size += len(line); line != all[lost+i] {
				t.Fatalf("line %d of those that are kept is another one", i)
			}
		}
		if size > 64<<10 || lost > 0 && size+len(all[lost-1])+len(tail.lines) < 64<<10 {
			t.Fatalf("%d bytes are kept", size)
		}
	})
}
