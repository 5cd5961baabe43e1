package job

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
)

// superseded reports whether a later fact about the node was applied. The same fact may arrive
// again, made from discovery's record, because a worker that it concerns has only become known
// since.
func (t *transition) superseded(n ident.NodeID) bool {
	return t.in.Number != 0 && t.in.Number < t.Nodes[n].Number
}

// nodeJoined applies that an agent has joined. Workers of an older one there are gone with it.
func (t *transition) nodeJoined(b events.NodeJoined) {
	if t.superseded(b.Node) || !t.Concerns(b.Node) {
		return
	}
	n := t.nodeRecord(b.Node)
	back := n.LostAgent == b.Incarnation
	if back {
		n.LostAgent = "" // it was only unreachable
		if n.CountedAgent == b.Incarnation {
			n.CountedAgent = "" // should it be lost again, that is another failure
		}
	}
	n.NewestAgent = max(n.NewestAgent, b.Incarnation)
	t.Nodes[b.Node] = n
	if back {
		t.nodeReturned(b)
	}
	left := func(w *tables.WorkerView) bool { return slices.Contains(b.LeftIncarnations, w.Agent) }
	t.loseWorkers(b.Node, agentEnd{reason: fmt.Sprintf("its agent on %s has left", b.Node), planned: true, announced: true}, left)
	t.loseWorkers(b.Node, agentEnd{reason: fmt.Sprintf("its agent on %s was restarted", b.Node), replacedBy: b.Incarnation}, func(w *tables.WorkerView) bool {
		return w.Agent != "" && w.Agent < b.Incarnation && !left(w)
	})
}

// nodeRecord returns the record of a node, with this fact as the last one.
func (t *transition) nodeRecord(id ident.NodeID) Node {
	if t.Nodes == nil {
		t.Nodes = map[ident.NodeID]Node{}
	}
	n := t.Nodes[id]
	n.Number = max(n.Number, t.in.Number)
	return n
}

// nodeReturned reverts the loss of an agent's workers that were only unreachable: they run, or
// their own exit decides. They are not counted again.
func (t *transition) nodeReturned(b events.NodeJoined) {
	working := t.waitingOrRunning()
	for w := range t.workers() {
		if w.Place.Node != b.Node || w.Agent != b.Incarnation {
			continue
		}
		n := t.Slots[w.Place.String()]
		switch {
		case working && t.displaced(w): // it failed before the fact of its node's return arrived
			t.respawnDisplaced(w)
		case w.State != tables.WorkerStateLost || n.Verdict == respawned:
		case n.ExitedIncarnation != w.Incarnation:
			t.markRunning(w)
		case !t.succeededMeanwhile(w):
			w.State = tables.WorkerStateFailed
			t.updateSlot(w.Place, func(n *SlotRecord) { n.Verdict, n.Displaced = "", w.Incarnation })
			if working && t.displaced(w) { // otherwise it stays lost with its place
				t.respawnDisplaced(w)
			}
		}
	}
	t.undoBroken()
}

// undoBroken applies that the generation has all its members, after a loss that was none: a fact of
// the loss that is delivered late may concern an earlier generation than this one, which the node
// takes part in again. If the rendezvous has opened a round, its fact breaks the generation again.
func (t *transition) undoBroken() {
	if t.inProcess() || t.Broken == 0 || t.Broken != t.View.Generation || t.Pending.Proposed > t.View.Generation {
		return
	}
	for w := range t.workers() {
		if t.member(w) && w.State.Ended() && w.State != tables.WorkerStateSucceeded {
			return
		}
	}
	t.Broken--
}

// succeededMeanwhile applies the success of a worker that exited while it was presumed lost, and
// reports whether it did.
func (t *transition) succeededMeanwhile(w *tables.WorkerView) bool {
	n := t.Slots[w.Place.String()]
	if n.ExitedIncarnation != w.Incarnation || !n.Succeeded {
		return false
	}
	w.State = tables.WorkerStateSucceeded
	t.setReported(w.WorkerRef, w.Rank, w.State)
	t.updateSlot(w.Place, func(n *SlotRecord) { n.Verdict = "" })
	return true
}

// markRunning sets a worker that was presumed lost to running.
func (t *transition) markRunning(w *tables.WorkerView) {
	w.State, w.Detail = tables.WorkerStateRunning, ""
	t.countReport(w.WorkerRef, w.Rank, reportedNothing)
	t.updateSlot(w.Place, func(n *SlotRecord) {
		n.Verdict = ""
		n.Ended = slices.DeleteFunc(n.Ended, func(i ident.Incarnation) bool { return i == w.Incarnation })
	})
}

// nodeEnded applies that a node was lost, or has left as planned. Workers there whose end is
// unknown are lost, and none is respawned there.
func (t *transition) nodeEnded(b events.NodeFact, planned bool) {
	if t.superseded(b.Node) || !t.Concerns(b.Node) {
		return
	}
	why := fmt.Sprintf("its node %s was lost", b.Node)
	if planned {
		why = fmt.Sprintf("its node %s has left", b.Node)
	}
	if b.Reason != "" {
		why += ": " + b.Reason
	}
	n := t.nodeRecord(b.Node)
	n.LostAgent = max(n.LostAgent, b.Incarnation)
	t.Nodes[b.Node] = n
	t.loseWorkers(b.Node, agentEnd{reason: why, planned: planned, announced: planned || b.Departing}, func(w *tables.WorkerView) bool { return w.Agent <= b.Incarnation })
}

type agentEnd struct {
	reason     string
	planned    bool              // it has left
	announced  bool              // its end was announced: its workers' failures are not counted
	replacedBy ident.Incarnation // the agent that has replaced it, if any
}

// loseWorkers marks the workers of a node as lost that belong to the agents that theirs selects.
// One node is one fault: it is counted once, however many workers it had. A respawn granted there
// before is revoked.
func (t *transition) loseWorkers(node ident.NodeID, how agentEnd, theirs func(*tables.WorkerView) bool) {
	kind, why := events.CauseNodeLost, how.reason
	if how.planned {
		kind = events.CauseShrink
	}
	cause := events.Cause{Kind: kind, Node: node, Rank: -1, Detail: why}
	var lost, waiting []*tables.WorkerView
	var first *tables.WorkerView // the worker that the failure is counted for: a member, if one is lost
	members := 0
	for w := range t.workers() {
		switch {
		case w.Place.Node != node || !theirs(w):
		case !w.State.Ended():
			if first == nil || (members == 0 && t.member(w)) {
				first = w
			}
			if t.member(w) {
				members++
			}
			t.endWorker(w, tables.WorkerStateLost, why, nil)
			lost = append(lost, w)
		case t.Slots[w.Place.String()].Verdict == respawned:
			waiting = append(waiting, w)
		}
	}
	if members == 1 {
		cause = events.CauseAt(kind, first.Place, first.Rank, why)
	}
	if !t.waitingOrRunning() {
		return
	}
	if members > 0 {
		t.generationBroken(cause)
	}
	if len(lost) > 0 && !how.planned {
		t.nodeSpan(node, lost[0].Agent, why)
	}
	paid := slices.ContainsFunc(lost, func(w *tables.WorkerView) bool { return t.Slots[w.Place.String()].JudgedIncarnation == w.Incarnation })
	if first != nil {
		ended := slices.MaxFunc(lost, func(a, b *tables.WorkerView) int { return cmp.Compare(a.Agent, b.Agent) }).Agent
		g := t.generationLeft(first)
		paid = !t.claimAgent(node, ended, how.replacedBy) || paid
		switch {
		case how.announced:
		case paid:
			t.recordFirstError(first)
			t.claimFailure(g)
		case !t.countFailure(first, g, t.silentFailure(events.FailureLost, members > 0)):
			return
		}
	}
	for _, w := range append(lost, waiting...) {
		t.denyRespawn(w, why)
	}
	if members > 0 {
		t.respawnFinished()
	}
}

// claimAgent records the end of a node's agent, which another one may have replaced, as counted,
// and reports whether it was not before. All that a job loses with one agent is one failure,
// whichever reports it first: discovery, or the next agent, which finds the processes.
func (t *transition) claimAgent(node ident.NodeID, ended, replacedBy ident.Incarnation) bool {
	if t.Nodes == nil {
		t.Nodes = map[ident.NodeID]Node{}
	}
	n := t.Nodes[node]
	first := (ended == "" || (ended > n.CountedAgent && ended >= n.CountedBefore)) && (replacedBy == "" || replacedBy != n.CountedBefore)
	n.CountedAgent, n.CountedBefore = max(n.CountedAgent, ended), max(n.CountedBefore, replacedBy)
	t.Nodes[node] = n
	return first
}

// endedAgent returns the agent that has run a worker whose exit a later agent reports; empty if
// none is known.
func (t *transition) endedAgent(b events.WorkerExited) (ended ident.Incarnation) {
	if w := t.worker(b.Place); w != nil && w.Incarnation == b.Incarnation && w.Agent < b.Agent {
		ended = w.Agent
	}
	n := t.Nodes[b.Place.Node]
	for _, known := range []ident.Incarnation{n.NewestAgent, n.LostAgent} {
		if ended == "" && known < b.Agent {
			ended = known
		}
	}
	return ended
}

// onLostNode reports whether the worker's agent is known to be gone.
func (t *transition) onLostNode(w *tables.WorkerView) bool {
	n := t.Nodes[w.Place.Node]
	return (n.LostAgent != "" && w.Agent <= n.LostAgent) || (w.Agent != "" && w.Agent < n.NewestAgent)
}

// Concerns reports whether facts about a node matter to the job: it has a worker or a place there,
// or counts the node as gone.
func (s State) Concerns(n ident.NodeID) bool {
	if s.View.State == "" || s.View.State.Terminal() {
		return false
	}
	if s.Nodes[n].LostAgent != "" || slices.ContainsFunc(s.Placed.Places, func(p ident.Place) bool { return p.Node == n }) {
		return true
	}
	for w := range s.workers() {
		if w.Place.Node == n {
			return true
		}
	}
	return false
}
