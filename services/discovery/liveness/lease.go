package liveness

import (
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/leases"
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

// proofAge is how old the heartbeat may be from which a grant counts that needs a proof: agents
// send one every half second, and a tenth later the brokers are asked.
const proofAge = 700 * time.Millisecond

// OnProof returns the lengths where grants need a proof, and count from a heartbeat: see Majority.
func (l Lease) OnProof() Lease {
	return Lease{Restart: l.Restart + proofAge, InPlace: l.InPlace + proofAge}
}

// leaseSlack is what a lease may last longer than its length: an agent needs some time to end its
// processes, and its clock may run slower by a fiftieth.
func leaseSlack(length time.Duration) time.Duration { return 500*time.Millisecond + length/50 }

// endLease records when the lease of the agent ends that is declared lost now, having been heard by
// the observing replica, which knows a fleet of this size and perhaps several brokers, for the last
// time before silence. Another replica may have granted it for a larger fleet, but for none twice
// as large.
func (t *transition) endLease(silence time.Duration, fleetSize int, several bool) {
	if t.m.Lease == (Lease{}) {
		return
	}
	lease := t.m.Lease.ForFleet(2 * fleetSize)
	if several {
		lease = lease.OnProof()
	}
	seen := t.now.Add(-max(0, silence))
	ends := func(length time.Duration) time.Time { return seen.Add(length + leaseSlack(length)) }
	t.s.View.LeaseEnds = t.s.View.LeaseEnds.Later(leases.Ends{Restart: ends(lease.Restart), InPlace: ends(lease.InPlace)})
}

// endedBy applies that a new agent has ended what the recorded one had left running, if it has the
// same state folder.
func (t *transition) endedBy(b events.NodeHello) {
	v := &t.s.View
	if !t.now.Before(v.LeaseEnds.Restart) && !t.now.Before(v.LeaseEnds.InPlace) {
		v.LeaseEnds, t.s.OtherLeases = leases.Ends{}, leases.Ends{}
	}
	if slices.Contains(b.Predecessors, v.Incarnation) {
		v.LeaseEnds = t.s.OtherLeases
	} else {
		t.s.OtherLeases = v.LeaseEnds
	}
}

// Renewal is what a replica answers an agent that asks for its lease.
type Renewal struct {
	Granted bool
	// Age is how much of the lease is over already: it counts from a heartbeat.
	Age       time.Duration
	TimesLost uint64 // how often the agent was declared lost before
	Mend      bool   // as Observe returns it
}

// Renew records that an agent asks for its lease, and returns what this replica may answer. A
// replica that was paused, or that receives nothing, may know an old record: it grants nothing.
func (a *HeartbeatTracker) Renew(who Incarnation, l broker.Link, now time.Time) (r Renewal) {
	n := a.nodes[who.Node]
	if n == nil || n.incarnation != who.Incarnation {
		return Renewal{}
	}
	open := a.noteConnection(n, l, now)
	if open {
		n.seen(now)
		r.Mend = n.mend()
	}
	r.TimesLost = n.timesLost
	r.Granted = open && !n.suspected && !a.health.Disconnected() && a.health.Checked(now, a.Gap)
	if a.NeedsProof {
		r.Age = max(0, now.Sub(n.proven))
		r.Granted = r.Granted && !n.proven.IsZero()
	}
	return r
}

// Majority records a proof: most of the brokers that store discovery's record have answered what
// this replica asked then. So the heartbeats that it had heard before had come to the side of a cut
// where that record can change, where other replicas have heard them too. A replica on the other
// side, with a broker and agents of its own, has no newer proof, and what it grants counts from
// them: it ends when the others expect it.
//
//	agent        ♥1        ♥2 asks         ♥3 asks
//	replica A       proof     grants: -♥1  │  grants: -♥1, shorter and shorter
//	brokers                             cut, most are on the other side
//	replica B       ♥1        ♥2           │  the lease ends when one would that counts from ♥2
//
// What it does not hear means nothing either: see Deaf.
func (a *HeartbeatTracker) Majority(asked time.Time) {
	if asked.After(a.provenAt) {
		a.provenAt = asked
	}
	for _, n := range a.nodes {
		for _, beat := range n.beats {
			if !beat.After(asked) && beat.After(n.proven) {
				n.proven = beat
			}
		}
	}
}
