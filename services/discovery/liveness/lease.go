package liveness

import (
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
)

// A lease makes sure that the processes of a lost node have ended before others take their place.
// An agent asks discovery for it twice a second, and ends its processes when it has not got one for
// the length of the lease, counted from when it asked. A replica grants it only to a node that is
// ready in discovery's record. So nothing is granted to a node that was suspected, and when it is
// declared lost its lease ends at a time that is known: that of the last heartbeat and the length.
// (Gray, Cheriton: Leases, 1989; the lease is the agent's, and what it covers are its processes.)

// Lease has the lengths of the lease of an agent.
type Lease struct {
	Restart time.Duration // of processes of recovery by restart
	InPlace time.Duration // of all others
}

// ForFleet returns the lengths for a fleet of so many nodes. Agents of a large fleet ask less
// often, and may miss two answers.
func (l Lease) ForFleet(nodes int) Lease {
	if nodes < LargeFleet {
		return l
	}
	more := 2 * heartbeatInterval(nodes)
	return Lease{Restart: l.Restart + more, InPlace: l.InPlace + more}
}

// leaseSlack is what a lease may last longer than its length: an agent needs some time to end its
// processes, and its clock may run slower by a fiftieth.
func leaseSlack(length time.Duration) time.Duration { return 500*time.Millisecond + length/50 }

// endLease records when the lease of the agent ends that is declared lost now, having been heard by
// the observing replica, which knows a fleet of this size, for the last time before silence.
// Another replica may have granted it for a larger fleet, but for none twice as large.
func (t *transition) endLease(silence time.Duration, fleetSize int) {
	if t.m.Lease == (Lease{}) {
		return
	}
	lease := t.m.Lease.ForFleet(2 * fleetSize)
	heard := t.now.Add(-max(0, silence))
	ends := func(length time.Duration) time.Time { return heard.Add(length + leaseSlack(length)) }
	t.s.View.LeaseEnds = t.s.View.LeaseEnds.Later(events.LeaseEnds{Restart: ends(lease.Restart), InPlace: ends(lease.InPlace)})
}

// endedBy applies that a new agent has ended what the recorded one had left running, if it has the
// same state folder.
func (t *transition) endedBy(b events.NodeHello) {
	v := &t.s.View
	if !t.now.Before(v.LeaseEnds.Restart) && !t.now.Before(v.LeaseEnds.InPlace) {
		v.LeaseEnds, t.s.OtherLeases = events.LeaseEnds{}, events.LeaseEnds{}
	}
	if slices.Contains(b.Predecessors, v.Incarnation) {
		v.LeaseEnds = t.s.OtherLeases
	} else {
		t.s.OtherLeases = v.LeaseEnds
	}
}

// Renew records that an agent asks for its lease, and reports whether this replica may grant it,
// and how often the agent was declared lost before. mend is as in Observe. A replica that was
// paused, or that receives nothing, may know an old record: it grants nothing.
func (a *HeartbeatTracker) Renew(who Incarnation, l events.Link, now time.Time) (granted bool, lost uint64, mend bool) {
	n := a.nodes[who.Node]
	if n == nil || n.incarnation != who.Incarnation {
		return false, 0, false
	}
	open := a.noteConnection(n, l, now)
	if open {
		n.seen(now)
		mend = n.mend()
	}
	return open && !n.suspected && !a.health.Disconnected() && a.health.Checked(now, a.Gap), n.timesLost, mend
}
