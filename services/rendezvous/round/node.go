package round

import (
	"slices"

	"github.com/regroup-io/regroup/events"
)

// loseMember takes a seat's worker out because its node is gone, and returns its rank in the sealed
// generation, or -1.
func (t *transition) loseMember(x *Member) int {
	rank := -1
	if x.State == active || x.State == joined {
		rank = t.rankOf(x.Place, x.Incarnation)
	}
	x.State = lost
	return rank
}

// newestFact tells whether the input is the newest fact about a node so far, and remembers that.
func (t *transition) newestFact(n events.NodeID) bool {
	if t.Superseded(n, t.in.Number) {
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

// nodeLost takes in discovery's verdict about one incarnation of a node.
func (t *transition) nodeLost(n events.NodeID, inc events.Incarnation, kind events.CauseKind) {
	back := t.Agents[n] > inc // ULIDs sort by age: a newer life of the node is known, so only seats of the old one are lost
	t.loseNode(n, kind, "node "+string(n)+" is gone", func(x *Member) bool {
		return (x.Agent == "" && !back) || x.Agent == inc
	}, back)
}

// loseNode takes out the seats of a node that which selects, opens the next generation if one of
// them had a rank, and with reseat empties them for the node's next life.
func (t *transition) loseNode(n events.NodeID, kind events.CauseKind, detail string, which func(*Member) bool, reseat bool) {
	cause := events.Cause{Kind: kind, Node: n, Rank: -1, Detail: detail}
	seats := t.membersOn(n)
	for i := range seats {
		x := &seats[i]
		if !which(x) {
			continue
		}
		if r := t.loseMember(x); r >= 0 && cause.Rank < 0 {
			place := x.Place
			cause.Place, cause.Rank = &place, r
		}
		if reseat && !x.Leaving {
			t.resetMember(x, x.Attempt+1)
		}
	}
	if cause.Rank >= 0 {
		t.propose(cause, 0)
	}
}

// nodeReturned gives the seats that a node lost with an older life to its new one.
func (t *transition) nodeReturned(n events.NodeFact) {
	if len(t.membersOn(n.Node)) == 0 || t.Agents[n.Node] > n.Incarnation {
		return
	}
	if t.Agents == nil {
		t.Agents = map[events.NodeID]events.Incarnation{}
	}
	t.Agents[n.Node] = n.Incarnation
	t.loseNode(n.Node, events.CauseNodeLost, "node "+string(n.Node)+" came back", func(x *Member) bool {
		switch x.State {
		case lost: // even if it was only out of reach: its workers were told that they are out
			return true
		case dead, respawnDenied: // of an unknown agent if it has never joined
			return x.Agent != n.Incarnation
		}
		return x.Agent != n.Incarnation && x.Agent != "" // a seat that nobody ever started belongs to the new agent as it is
	}, true)
}

// newIncarnation takes in that a fact is about a newer life of a node than its seats are: whatever
// tells of its coming was overtaken by this one, and will not count.
func (t *transition) newIncarnation(n events.NodeFact) {
	if slices.ContainsFunc(t.membersOn(n.Node), func(x Member) bool { return olderAgent(&x, n.Incarnation) }) {
		t.nodeReturned(n)
	}
}

// undoNodeLoss gives a node its seats back that was lost and is well again, though its return was
// overtaken.
func (t *transition) undoNodeLoss(n events.NodeFact) {
	if t.Agents[n.Node] <= n.Incarnation {
		t.loseNode(n.Node, events.CauseNodeLost, "node "+string(n.Node)+" is back", func(x *Member) bool { return x.State == lost }, true)
	}
}

// olderAgent tells whether an older life of the seat's agent sat on it.
func olderAgent(x *Member, inc events.Incarnation) bool { return x.Agent != "" && x.Agent < inc }

// noteConnection takes in what a fact says of a node's connection to the brokers.
func (t *transition) noteConnection(n events.NodeFact) {
	if !n.Disconnected {
		delete(t.Disconnected, n.Node)
		return
	}
	if t.Disconnected == nil {
		t.Disconnected = map[events.NodeID]events.Incarnation{}
	}
	t.Disconnected[n.Node] = n.Incarnation
}

// disconnected tells whether the broker saw the connection of the seat's agent end.
func (t *transition) disconnected(x *Member) bool {
	return x.Agent != "" && t.Disconnected[x.Place.Node] == x.Agent
}

// dropDisconnected takes the members of a node out of the next generation that two kinds of
// witnesses miss: the broker its agent, and peers one of its workers. One alone proves nothing:
// links break, and being accused removes nobody. Both together are waited for no longer; if the
// node lives, its workers come in later as newcomers.
func (t *transition) dropDisconnected() {
	if len(t.Disconnected) == 0 || !t.open() || t.restart() {
		return
	}
	missed := map[events.NodeID]bool{}
	for i := range t.Members {
		x := &t.Members[i]
		accused := x.State == active && !x.RejoinBy.IsZero()
		if t.disconnected(x) && (accused || x.State == dead && t.rankOf(x.Place, x.Incarnation) >= 0) {
			missed[x.Place.Node] = true
		}
	}
	for i := range t.Members {
		if x := &t.Members[i]; x.State == active && missed[x.Place.Node] && t.disconnected(x) {
			x.State, x.RejoinBy = pending, zeroTime
		}
	}
}
