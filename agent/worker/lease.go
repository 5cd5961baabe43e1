package worker

import (
	"time"

	"github.com/regroup-io/regroup/events"
)

// lease is the right of this node to have processes run, which discovery grants for some time.
// Without it they may be started on another node: two copies of one rank would write the same
// files. So they are killed, without grace, when the lease is over.
//
// Example: discovery answers the request of 12:00:00.0 with 3 s, and no later one. At 12:00:03.0
// the processes of jobs with recovery by restart are killed, and those of generations that are on
// this node alone. Workers that recover in place and have peers on other nodes make no step without
// them, and may wait for a minute.
type lease struct {
	alone, withPeers time.Time // zero = no limit
	reason           string    // why it was not renewed
}

// until returns the end of the lease for a process.
func (s *State) until(j *job, w *incarnation) time.Time {
	if s.shortLease(j, w) {
		return s.lease.alone
	}
	return s.lease.withPeers
}

// shortLease reports whether a process goes on without any peer on another node.
func (s *State) shortLease(j *job, w *incarnation) bool {
	if !j.inProcess() {
		return true
	}
	here := 0
	for _, x := range j.incarnations {
		if x.ref.Generation == w.ref.Generation {
			here++
		}
	}
	return w.ref.Generation > 0 && here >= w.world
}

func (t *transition) leaseRenewed(in LeaseRenewed) {
	t.s.lease = lease{alone: in.Alone, withPeers: in.WithPeers, reason: in.Reason}
}

// leaseLost ends the lease of the processes that run now.
func (t *transition) leaseLost(in LeaseLost) {
	for _, j := range t.s.jobs {
		for _, w := range j.incarnations {
			if w.alive() && (in.All || t.s.shortLease(j, w)) {
				w.loseLease(in.Reason)
			}
		}
	}
	if in.All {
		t.s.lease = lease{alone: t.now, withPeers: t.now, reason: in.Reason}
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
		if end := t.s.until(j, w); !end.IsZero() && !t.now.Before(end) {
			w.loseLease(t.s.lease.reason)
		}
		if w.leaseOver != "" {
			t.kill(w)
		}
	}
}

// mayStart reports whether the lease permits to start a process.
func (t *transition) mayStart() bool {
	return t.s.lease.alone.IsZero() || t.now.Before(t.s.lease.alone)
}

// leaseDeadline returns when the lease of a running process is over; zero = never.
func (s *State) leaseDeadline(j *job, w *incarnation) time.Time {
	if w.phase != running || w.leaseOver != "" {
		return time.Time{}
	}
	return s.until(j, w)
}

// ShortLeases returns the processes that have the short lease.
func (s State) ShortLeases() map[events.Incarnation]bool {
	short := map[events.Incarnation]bool{}
	for _, j := range s.jobs {
		for _, w := range j.incarnations {
			if w.alive() && s.shortLease(j, w) {
				short[w.ref.Incarnation] = true
			}
		}
	}
	return short
}
