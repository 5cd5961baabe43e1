package shards

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

var (
	seeds = flag.Int("seeds", 0, "how many seeds to run; 0 = 60")
	seed  = flag.Int64("seed", -1, "run this one only, and print what happens with -v")
	first = flag.Int("first", 0, "first seed")
)

// TestSeeds runs simulated jobs.
func TestSeeds(t *testing.T) {
	if *seed >= 0 {
		h := play(t, uint64(*seed), true)
		t.Log(h)
		if h.broken != nil {
			t.Error(h.broken)
		}
		return
	}
	n := *seeds
	if n == 0 {
		n = 60
	}
	var mu sync.Mutex
	counts := map[string]int{}
	t.Cleanup(func() { // after the parallel tests
		t.Logf("%d seeds against invariants 0 to %d", n, len(invariants)-1)
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			t.Logf("%8d %s", counts[what], what)
		}
	})
	for i := range n {
		s := uint64(*first + i)
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			t.Parallel()
			h := play(t, s, false)
			if h.broken != nil {
				t.Errorf("seed %d: %s\ngo test ./elastic/shards -run TestSeeds -v -seed %d\n%s", s, h.broken, s, h)
			}
			mu.Lock()
			defer mu.Unlock()
			for what, n := range h.counts {
				counts[what] += n
			}
		})
	}
}

// play runs one seed.
func play(t *testing.T, seed uint64, detail bool) *history {
	h := newHistory(seed, detail)
	synctest.Test(t, func(t *testing.T) { h.run(t.Context()) })
	return h
}

// TestASeedReplays: a seed leads to the same history, to the last delivery.
func TestASeedReplays(t *testing.T) {
	for s := range uint64(10) {
		if a, b := play(t, s, true).String(), play(t, s, true).String(); a != b {
			t.Errorf("seed %d has two histories:\n%s\n\n%s", s, a, b)
		}
	}
}
