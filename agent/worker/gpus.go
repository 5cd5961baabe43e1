package worker

import "github.com/regroup-io/regroup/events/ident"

// gpuIsFree reports whether a job's worker may start on a slot: not while one of another job that
// had the slot before is still ending, if the slot has a GPU. What that one holds of the GPU's
// memory is free once the process can be waited for, 111 to 135 ms after a SIGKILL on an H200.
//
// Example: a job is scaled down, and its worker on slot 1 takes 20 s to stop. The job that has slot
// 1 now starts its worker there after that, instead of running out of memory.
func (t *transition) gpuIsFree(j *job, slot ident.Slot) bool {
	if int(slot) >= len(t.s.cfg.GPUs) {
		return true
	}
	for _, other := range t.s.jobs {
		if w := other.incarnations[slot]; other != j && w != nil && w.alive() {
			return false
		}
	}
	return true
}
