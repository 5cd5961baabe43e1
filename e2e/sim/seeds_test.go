package sim

import (
	"flag"
	"fmt"
	"testing"
)

var (
	seeds = flag.Int("seeds", 0, "how many seeds to run; 0 = 200")
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
		n = 200
	}
	for i := range n {
		s := uint64(*first + i)
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			t.Parallel()
			one(t, s, nil)
		})
	}
}

func one(t *testing.T, s uint64, tell func(string)) {
	t.Helper()
	sc := draw(s)
	v := run(sc, mutation{}, tell)
	if v == nil {
		return
	}
	less := shrink(sc, mutation{}, v.number)
	t.Errorf("seed %d: %s\nfaults that are enough for it (of %d):\n%s", s, v, len(sc.faults), script(less))
}
