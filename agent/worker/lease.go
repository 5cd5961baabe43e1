package worker

import "time"

// lease is the right of this node to have processes run, which discovery grants for some time.
// Without it they may be started on another node: two copies of one rank would write the same
// files. So they are killed, without grace, when the lease is over.
//
// Example: discovery answers the request of 12:00:00.0 with 3 s, and no later one. At 12:00:03.0
// the processes of jobs with recovery by restart are killed. Workers that recover in place have the
// state of their job in memory, and without peers on other nodes most make no step: they may wait
// for a minute, and so long nobody takes their place unless another member of their generation is
// there.
type lease struct {
	restart, inPlace time.Time // zero = no limit
	reason           string    // why it was not renewed
}

// until returns the end of the lease for the processes of a job.
func (s *State) until(j *job) time.Time {
	if j.inProcess() {
		return s.lease.inPlace
	}
	return s.lease.restart
}

func (in LeaseRenewed) apply(t *transition) {
	t.s.lease = lease{restart: in.Restart, inPlace: in.InPlace, reason: in.Reason}
}

// apply ends the lease of the processes that run now.
func (in LeaseLost) apply(t *transition) {
	for _, j := range t.s.jobs {
		for _, w := range j.incarnations {
			if w.alive() && (in.All || !j.inProcess()) {
				w.loseLease(in.Reason)
			}
		}
	}
	if in.All {
		t.s.lease = lease{restart: t.now, inPlace: t.now, reason: in.Reason}
	}
}

func (w *incarnation) loseLease(reason string) {
	if w.leaseOver == "" {
		w.leaseOver, w.leaseFailure = reason, !w.stopRequested
	}
}

// endLeases kills the processes of a job whose lease is over.
func (t *transition) endLeases(j *job) {
	for _, slot := range j.slots() {
		w := j.incarnations[slot]
		if !w.alive() {
			continue
		}
		if end := t.s.until(j); !end.IsZero() && !t.now.Before(end) {
			w.loseLease(t.s.lease.reason)
		}
		if w.leaseOver != "" {
			t.kill(w)
		}
	}
}

// mayStart reports whether the lease permits to start a process.
func (t *transition) mayStart() bool {
	return t.s.lease.restart.IsZero() || t.now.Before(t.s.lease.restart)
}

// leaseDeadline returns when the lease of a running process is over; zero = never.
func (s *State) leaseDeadline(j *job, w *incarnation) time.Time {
	if w.phase != running || w.leaseOver != "" {
		return time.Time{}
	}
	return s.until(j)
}
