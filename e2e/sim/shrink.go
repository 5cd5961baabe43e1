package sim

import "slices"

// shrink makes a scenario smaller while it still violates the same invariant: fewer faults, jobs
// and replicas, no noise.
func shrink(sc scenario, m mutation, number int) scenario {
	fails := func(less scenario) bool {
		v := run(less, m, nil)
		return v != nil && v.number == number
	}
	for half := len(sc.faults) / 2; half > 0; half /= 2 { // many at once first
		for i := 0; i+half <= len(sc.faults); {
			less := sc
			less.faults = slices.Delete(slices.Clone(sc.faults), i, i+half)
			if fails(less) {
				sc = less
				continue
			}
			i += half
		}
	}
	for i := len(sc.jobs) - 1; i >= 0 && len(sc.jobs) > 1; i-- {
		less := sc
		less.jobs = slices.Delete(slices.Clone(sc.jobs), i, i+1)
		if fails(less) {
			sc = less
		}
	}
	for i := range sc.replicas {
		less := sc
		if less.replicas[i] = 1; fails(less) {
			sc = less
		}
	}
	less := sc
	if less.loss, less.repeat, less.slow = 0, 0, 0; fails(less) {
		sc = less
	}
	return sc
}
