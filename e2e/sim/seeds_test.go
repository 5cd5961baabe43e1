package sim

import (
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
)

var (
	seeds = flag.Int("seeds", 0, "how many seeds to run; 0 = 100")
	seed  = flag.Int64("seed", -1, "run this one only, and tell its story with -v")
	first = flag.Int("first", 0, "first seed")
)

// TestSeeds runs seeds; each is one goroutine in virtual time.
func TestSeeds(t *testing.T) {
	if *seed >= 0 {
		one(t, uint64(*seed), func(line string) { t.Log(line) })
		return
	}
	n := *seeds
	if n == 0 {
		n = 100
	}
	var faults atomic.Int64
	t.Cleanup(func() { // after the parallel ones
		t.Logf("%d seeds with %d faults against invariants 0 to %d", n, faults.Load(), len(invariants)-1)
	})
	for i := range n {
		s := uint64(*first + i)
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			t.Parallel()
			faults.Add(int64(one(t, s, nil)))
		})
	}
}

// one runs a seed and returns how many faults it has.
func one(t *testing.T, s uint64, tell func(string)) int {
	t.Helper()
	sc := draw(s)
	v := run(sc, mutation{}, tell)
	if v == nil {
		return len(sc.faults)
	}
	less := shrink(sc, mutation{}, v.number)
	t.Errorf("seed %d: %s\nfaults that are enough for it (of %d):\n%s", s, v, len(sc.faults), script(less))
	return len(sc.faults)
}
