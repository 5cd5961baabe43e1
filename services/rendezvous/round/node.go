package round

import (
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// loseMember removes a worker whose node is gone, and returns its rank in the sealed generation.
func (t *transition) loseMember(x *Member) int {
	rank := -1
	if x.State == active || x.State == joined {
		rank = t.rank(x)
	}
	t.keepLease(x)
	x.State = lost
	return rank
}

// newestFact reports whether the input is the newest fact about a node, and records its number.
func (t *transition) newestFact(n ident.NodeID) bool {
	if t.Superseded(n, t.in.Number) {
		return false
	}
	if t.in.Number != 0 {
		put(&t.NodeFacts, n, t.in.Number)
	}
	return true
}

// nodeFact applies a fact about a node to its members.
func (t *transition) nodeFact(b events.NodeEvent) {
	n := b.Fact()
	if !t.newestFact(n.Node) {
		return
	}
	t.noteConnection(n)
	defer t.endLeases(n)
	switch b.(type) {
	case events.NodeLost:
		t.nodeLost(n.Node, n.Incarnation, events.CauseNodeLost)
	case events.NodeLeft:
		t.nodeLost(n.Node, n.Incarnation, events.CauseShrink)
	case events.NodeJoined:
		t.nodeReturned(n)
	case events.NodeRecovered:
		t.newIncarnation(n)
		t.undoNodeLoss(n)
	default: // suspected, draining
		t.newIncarnation(n)
	}
}

// nodeLost applies discovery's decision that an incarnation of a node is gone.
func (t *transition) nodeLost(n ident.NodeID, inc ident.Incarnation, kind events.CauseKind) {
	// ULIDs sort by age: if the node has a newer incarnation, only members of the old one are lost.
	back := t.Agents[n] > inc
	t.loseNode(n, kind, "node "+string(n)+" is gone", func(x *Member) bool {
		return (x.Agent == "" && !back) || x.Agent == inc
	}, back)
}

// loseNode removes the members of a node that which selects and opens the next generation if one of
// them had a rank. With reseat it resets them for the node's next incarnation.
func (t *transition) loseNode(n ident.NodeID, kind events.CauseKind, detail string, which func(*Member) bool, reseat bool) {
	cause := events.Cause{Kind: kind, Node: n, Rank: -1, Detail: detail}
	for x := range each(t.membersOn(n)) {
		if !which(x) {
			continue
		}
		if r := t.loseMember(x); r >= 0 && cause.Rank < 0 {
			cause = events.CauseAt(kind, x.Place, r, detail)
		}
		if reseat && !x.Leaving {
			t.resetMember(x, x.Attempt+1)
		}
	}
	if cause.Rank >= 0 {
		t.propose(cause, 0)
	}
}

// nodeReturned gives the members that a node lost with an older incarnation to its new one.
func (t *transition) nodeReturned(n events.NodeFact) {
	if len(t.membersOn(n.Node)) == 0 || t.Agents[n.Node] > n.Incarnation {
		return
	}
	put(&t.Agents, n.Node, n.Incarnation)
	t.loseNode(n.Node, events.CauseNodeLost, "node "+string(n.Node)+" came back", func(x *Member) bool {
		switch x.State {
		case lost: // even if the node was only unreachable: its workers' launches have removed them
			return true
		case dead, respawnDenied: // the agent is unknown if the worker never joined
			return x.Agent != n.Incarnation
		}
		// A member without an incarnation so far belongs to the new agent as it is.
		return x.Agent != n.Incarnation && x.Agent != ""
	}, true)
}

// newIncarnation applies that a fact is about a newer incarnation of a node than its members are.
// The fact that announced this incarnation was overtaken and will be ignored.
func (t *transition) newIncarnation(n events.NodeFact) {
	if slices.ContainsFunc(t.membersOn(n.Node), func(x Member) bool { return olderAgent(&x, n.Incarnation) }) {
		t.nodeReturned(n)
	}
}

// undoNodeLoss restores the members of a node that was lost and is healthy again, though the fact
// of its return was overtaken.
func (t *transition) undoNodeLoss(n events.NodeFact) {
	if t.Agents[n.Node] <= n.Incarnation {
		t.loseNode(n.Node, events.CauseNodeLost, "node "+string(n.Node)+" is back", func(x *Member) bool { return x.State == lost }, true)
	}
}

// olderAgent reports whether the member belongs to an older incarnation of the agent.
func olderAgent(x *Member, inc ident.Incarnation) bool { return x.Agent != "" && x.Agent < inc }

// noteConnection records what a fact says about a node's connection to the brokers.
func (t *transition) noteConnection(n events.NodeFact) {
	if !n.Disconnected {
		delete(t.Disconnected, n.Node)
		return
	}
	put(&t.Disconnected, n.Node, n.Incarnation)
}

// disconnected reports whether the broker saw the connection of the member's agent close.
func (t *transition) disconnected(x *Member) bool {
	return x.Agent != "" && t.Disconnected[x.Place.Node] == x.Agent
}

// dropDisconnected removes the members of a node from the next generation if two independent
// witnesses miss it: the broker its agent, and peers one of its workers. One witness alone proves
// nothing, because links break and an accusation removes no member. If the node is alive, its
// workers join later as newcomers.
func (t *transition) dropDisconnected() {
	if len(t.Disconnected) == 0 || !t.open() || t.restart() {
		return
	}
	missed := map[ident.NodeID]bool{}
	for x := range t.all() {
		accused := x.State == active && !x.RejoinBy.IsZero()
		if t.disconnected(x) && (accused || x.State == dead && t.rank(x) >= 0) {
			missed[x.Place.Node] = true
		}
	}
	for x := range t.all() {
		if x.State == active && missed[x.Place.Node] && t.disconnected(x) {
			x.State, x.RejoinBy = pending, zeroTime
		}
	}
}
