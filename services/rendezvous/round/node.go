package round

import (
	"slices"

	"github.com/regroup-io/regroup/events"
)

// gone takes a seat's worker out because its node is gone, and returns its rank in the sealed generation, or -1.
func (t *turn) gone(x *Seat) int {
	rank := -1
	if x.State == member || x.State == joined {
		rank = t.rankOf(x.Place, x.Incarnation)
	}
	x.State = lost
	return rank
}

// nextOf tells whether the input is the newest fact about a node so far, and remembers that.
func (t *turn) nextOf(n events.NodeID) bool {
	if t.Overtaken(n, t.in.Number) {
		return false
	}
	if t.in.Number != 0 {
		if t.NodeFacts == nil {
			t.NodeFacts = map[events.NodeID]uint64{}
		}
		t.NodeFacts[n] = t.in.Number
	}
	return true
}

// nodeGone takes in discovery's verdict about one incarnation of a node.
func (t *turn) nodeGone(n events.NodeID, inc events.Incarnation, kind events.CauseKind) {
	back := t.Agents[n] > inc // ULIDs sort by age: a newer life of the node is known, so only seats of the old one are lost
	t.loseNode(n, kind, "node "+string(n)+" is gone", func(x *Seat) bool {
		return (x.Agent == "" && !back) || x.Agent == inc
	}, back)
}

// loseNode takes out the seats of a node that which selects, opens the next generation if one of them had a rank, and
// with reseat empties them for the node's next life.
func (t *turn) loseNode(n events.NodeID, kind events.CauseKind, detail string, which func(*Seat) bool, reseat bool) {
	cause := events.Cause{Kind: kind, Node: n, Rank: -1, Detail: detail}
	seats := t.seatsOn(n)
	for i := range seats {
		x := &seats[i]
		if !which(x) {
			continue
		}
		if r := t.gone(x); r >= 0 && cause.Rank < 0 {
			place := x.Place
			cause.Place, cause.Rank = &place, r
		}
		if reseat && !x.Leaving {
			t.reseat(x, x.Attempt+1)
		}
	}
	if cause.Rank >= 0 {
		t.propose(cause, 0)
	}
}

// nodeBack gives the seats that a node lost with an older life to its new one.
func (t *turn) nodeBack(n events.NodeFact) {
	if len(t.seatsOn(n.Node)) == 0 || t.Agents[n.Node] > n.Incarnation {
		return
	}
	if t.Agents == nil {
		t.Agents = map[events.NodeID]events.Incarnation{}
	}
	t.Agents[n.Node] = n.Incarnation
	t.loseNode(n.Node, events.CauseNodeLost, "node "+string(n.Node)+" came back", func(x *Seat) bool {
		switch x.State {
		case lost: // even if it was only out of reach: its workers were told that they are out
			return true
		case dead, blamed: // of an unknown agent if it has never joined
			return x.Agent != n.Incarnation
		}
		return x.Agent != n.Incarnation && x.Agent != "" // a seat that nobody ever started belongs to the new agent as it is
	}, true)
}

// newLife takes in that a fact is about a newer life of a node than its seats are: whatever tells of its coming was overtaken
// by this one, and will not count.
func (t *turn) newLife(n events.NodeFact) {
	if slices.ContainsFunc(t.seatsOn(n.Node), func(x Seat) bool { return older(&x, n.Incarnation) }) {
		t.nodeBack(n)
	}
}

// notLost gives a node its seats back that was lost and is well again, though its return was overtaken.
func (t *turn) notLost(n events.NodeFact) {
	if t.Agents[n.Node] <= n.Incarnation {
		t.loseNode(n.Node, events.CauseNodeLost, "node "+string(n.Node)+" is back", func(x *Seat) bool { return x.State == lost }, true)
	}
}

// older tells whether an older life of the seat's agent sat on it.
func older(x *Seat, inc events.Incarnation) bool { return x.Agent != "" && x.Agent < inc }
