package main

import (
	"math/rand/v2"
	"time"
)

// fault is one injected fault. The same seed gives the same faults; the placement of workers at
// that time depends on the cluster.
type fault struct {
	kind   kind
	target int           // which one of its kind's targets, modulo their number
	other  int           // the second one, for a link
	hold   time.Duration // time until it is healed; killed processes are restarted by their supervisor
	rush   bool          // the next fault overlaps this one
}

// schedule draws n faults.
func schedule(seed uint64, n int) []fault {
	r := rand.New(rand.NewPCG(seed, 0))
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	all := make([]fault, n)
	for i := range all {
		pick := r.IntN(total)
		f := &all[i]
		for _, k := range kinds {
			if pick < k.weight {
				f.kind = k
				break
			}
			pick -= k.weight
		}
		f.target, f.other = r.IntN(1<<20), r.IntN(1<<20)
		f.hold = 100*time.Millisecond + time.Duration(min(r.ExpFloat64(), 5)*float64(f.kind.hold))
		f.rush = r.IntN(4) == 0
	}
	return all
}
