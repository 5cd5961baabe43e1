package round

import (
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/leases"
)

// Under recovery by restart a generation begins when no process of the one before can run any more:
// two copies of a rank would write the same files. A process has ended when its exit arrived, when
// its agent has joined again for its slot, or when the lease of its lost agent is over.
//
// Example (script a_lost_node_keeps_its_lease, with a lease of 1 s): a job of two workers is
// restarted as a group. The
// node of rank 1 is lost 2.5 s after its last heartbeat, and its place moves to another node, where
// everything is ready at 2.6 s. The next generation is sealed at 3.56 s, when the agent of the lost
// node has killed rank 1 for certain; or earlier, if its exit arrives, or a new agent with the
// state folder of the old one.
//
// With in-process recovery a survivor suffices: what has lost it makes no step. If there is none,
// the next generation waits for the leases of the lost nodes as well.

// LostNode is a node that was lost while members of the sealed generation ran there.
type LostNode struct {
	Node  ident.NodeID      `json:"node"`
	Agent ident.Incarnation `json:"agent"`
	Ends  leases.Ends       `json:"ends"`
}

// endTimeout is how long after the grace a process counts as ended although its agent, which is not
// lost, reports nothing: it was killed, and waits for a disk or a GPU.
const endTimeout = 15 * time.Second

// bits is a set of ranks.
type bits []byte

func (b bits) has(i int) bool { return i/8 < len(b) && b[i/8]&(1<<(i%8)) != 0 }

func (b *bits) add(i int) {
	for len(*b) <= i/8 {
		*b = append(*b, 0)
	}
	(*b)[i/8] |= 1 << (i % 8)
}

// processEnded applies the end of a process of the sealed generation.
func (t *transition) processEnded(w events.WorkerExited) {
	if r := t.rankOf(w.Place, w.Incarnation); r >= 0 {
		t.EndedRanks.add(r)
	}
}

// processReplaced applies that an agent joins for the next process in a slot: it does so when the
// one before has ended.
func (t *transition) processReplaced(j events.MemberJoin) {
	if !t.restart() {
		return
	}
	if from, ok := t.firstRank(j.Place.Node); ok {
		for r := from; r < len(t.View.Members) && t.View.Members[r].Place.Node == j.Place.Node; r++ {
			if m := &t.View.Members[r]; m.Place == j.Place && m.Agent == j.Agent && m.Incarnation < j.Incarnation {
				t.EndedRanks.add(r)
			}
		}
	}
}

// keepLease records that a node is lost whose processes may run on.
func (t *transition) keepLease(x *Member) {
	r := t.rank(x)
	if r < 0 || x.Agent == "" {
		return
	}
	ends := t.leaseEnds()
	if ends.IsZero() {
		t.EndedRanks.add(r)
		return
	}
	for i := range t.LostNodes {
		if l := &t.LostNodes[i]; l.Node == x.Place.Node && l.Agent == x.Agent {
			l.Ends = l.Ends.Later(ends)
			return
		}
	}
	t.LostNodes = append(t.LostNodes, LostNode{Node: x.Place.Node, Agent: x.Agent, Ends: ends})
}

// leaseEnds returns what the input says about the lease of the nodes that it declares lost.
func (t *transition) leaseEnds() leases.Ends {
	switch b := t.in.Body.(type) {
	case events.NodeEvent:
		return b.Fact().LeaseEnds
	case events.PlacementSet:
		return b.LeaseEnds
	}
	return leases.Ends{}
}

// endLeases applies that all processes of a node's earlier agents have ended, and those of this one
// if it has left.
func (t *transition) endLeases(n events.NodeFact) {
	for i := range t.LostNodes { // the newest fact knows best
		if l := &t.LostNodes[i]; l.Node == n.Node && l.Agent < n.Incarnation {
			l.Ends = n.LeaseEnds
		}
	}
	if !n.LeaseEnds.IsZero() {
		return
	}
	from, ok := t.firstRank(n.Node)
	for r := from; ok && r < len(t.View.Members) && t.View.Members[r].Place.Node == n.Node; r++ {
		if a := t.View.Members[r].Agent; a != "" && (a < n.Incarnation || a == n.Incarnation && n.State == events.NodeStateLeft) {
			t.EndedRanks.add(r)
		}
	}
}

// processesRun reports whether the next generation must wait for processes of the sealed one, and
// records until when, and for those of which nodes.
func (t *transition) processesRun() bool {
	if !t.restart() && (len(t.LostNodes) == 0 || t.survivors() > 0) {
		return false
	}
	byAgent := make(map[ident.Incarnation]leases.Ends, len(t.LostNodes)) // by agent
	for _, l := range t.LostNodes {
		byAgent[l.Agent] = l.Ends
	}
	for r := range t.View.Members {
		if t.EndedRanks.has(r) {
			continue
		}
		m := &t.View.Members[r]
		lease, lost := byAgent[m.Agent]
		end := t.NoticeAt.Add(t.Spec.Stop.Grace.D() + endTimeout)
		switch {
		case !t.restart():
			end = lease.InPlace // zero if it is not lost
		case lost:
			end = lease.Restart
		}
		if !t.now.Before(end) {
			continue
		}
		if end.After(t.BackOff) {
			t.BackOff = end
		}
		if !slices.Contains(t.View.EndingNodes, m.Place.Node) {
			t.View.EndingNodes = append(t.View.EndingNodes, m.Place.Node)
		}
	}
	return len(t.View.EndingNodes) > 0
}
