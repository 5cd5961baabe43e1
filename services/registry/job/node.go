package job

import (
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/events"
)

// later tells whether a later fact about the node was taken in. The same one may come again, made from discovery's record,
// because a worker that it is about has only become known since.
func (t *turn) later(n events.NodeID) bool {
	return t.in.Number != 0 && t.in.Number < t.Nodes[n].Number
}

// nodeJoined takes in that an agent came. Workers of an older agent on the same node are gone with it.
func (t *turn) nodeJoined(b events.NodeJoined) {
	if t.later(b.Node) {
		return
	}
	if !t.Concerns(b.Node) {
		return
	}
	n := t.remember(b.Node)
	back := n.Gone == b.Incarnation
	if back {
		n.Gone = "" // it was only out of reach
	}
	n.Came = max(n.Came, b.Incarnation)
	t.Nodes[b.Node] = n
	if back {
		t.found(b)
	}
	parted := func(w *events.WorkerView) bool { return slices.Contains(b.LeftIncarnations, w.Agent) }
	t.gone(b.Node, ending{why: fmt.Sprintf("its agent on %s has left", b.Node), planned: true, spared: true}, parted)
	t.gone(b.Node, ending{why: fmt.Sprintf("its agent on %s was restarted", b.Node), by: b.Incarnation}, func(w *events.WorkerView) bool {
		return w.Agent != "" && w.Agent < b.Incarnation && !parted(w)
	})
}

// remember returns what is known about a node, with this fact as the last one.
func (t *turn) remember(id events.NodeID) Node {
	if t.Nodes == nil {
		t.Nodes = map[events.NodeID]Node{}
	}
	n := t.Nodes[id]
	n.Number = max(n.Number, t.in.Number)
	return n
}

// found takes back what was said of an agent's workers while it was out of reach: they run, or their own end decides. They
// are not charged again.
func (t *turn) found(b events.NodeJoined) {
	for i := range t.View.Workers {
		w := &t.View.Workers[i]
		n := t.Notes[w.Place.String()]
		working := t.View.State == events.JobStateWaiting || t.View.State == events.JobStateRunning
		if w.Place.Node == b.Node && w.Agent == b.Incarnation && working && t.stranded(w) { // it crashed before its node's return was heard
			t.unstrand(w)
			continue
		}
		if w.Place.Node != b.Node || w.Agent != b.Incarnation || w.State != events.WorkerStateLost || n.Verdict == respawned {
			continue
		}
		if n.Exited != w.Incarnation {
			t.revive(w)
			continue
		}
		if t.endedWell(w) {
			continue
		}
		w.State = events.WorkerStateFailed
		t.note(w.Place, func(n *Note) { n.Verdict = "" })
		if working && t.hasPlace(w.Place) {
			t.respawn(w)
		}
	}
}

// endedWell takes in the end of a worker that was thought lost then, if it was a good one, and tells whether it was.
func (t *turn) endedWell(w *events.WorkerView) bool {
	n := t.Notes[w.Place.String()]
	if n.Exited != w.Incarnation || !n.Well {
		return false
	}
	w.State = events.WorkerStateSucceeded
	if word, ok := word(w.State); ok {
		t.say(w.WorkerRef, w.Rank, word)
	}
	t.note(w.Place, func(n *Note) { n.Verdict = "" })
	return true
}

// revive says that a worker which was thought lost runs.
func (t *turn) revive(w *events.WorkerView) {
	w.State, w.Detail = events.WorkerStateRunning, ""
	t.say(w.WorkerRef, w.Rank, saidNothing)
	t.note(w.Place, func(n *Note) {
		n.Verdict = ""
		n.Ended = slices.DeleteFunc(n.Ended, func(i events.Incarnation) bool { return i == w.Incarnation })
	})
}

// nodeGone takes in that a node was lost, or has left as it was asked to. Workers there whose end is unknown are lost,
// and nobody is started there again.
func (t *turn) nodeGone(b events.NodeFact, planned bool) {
	if t.later(b.Node) {
		return
	}
	why := fmt.Sprintf("its node %s was lost", b.Node)
	if planned {
		why = fmt.Sprintf("its node %s has left", b.Node)
	}
	if b.Reason != "" {
		why += ": " + b.Reason
	}
	if !t.Concerns(b.Node) {
		return
	}
	n := t.remember(b.Node)
	n.Gone = max(n.Gone, b.Incarnation)
	t.Nodes[b.Node] = n
	t.gone(b.Node, ending{why: why, planned: planned, spared: planned || b.Departing}, func(w *events.WorkerView) bool { return w.Agent <= b.Incarnation })
}

// ending is how an agent's life ended.
type ending struct {
	why     string
	planned bool               // it has left
	spared  bool               // its end was announced, at least: nobody is charged for what it took along
	by      events.Incarnation // the agent that has taken its place, if one has
}

// gone loses the workers of a node that belong to the agents that theirs tells. One node is one fault: it is charged once,
// however many workers it takes with it. A respawn that was granted there before is taken back.
func (t *turn) gone(node events.NodeID, how ending, theirs func(*events.WorkerView) bool) {
	kind, why := events.CauseNodeLost, how.why
	if how.planned {
		kind = events.CauseShrink
	}
	cause := events.Cause{Kind: kind, Node: node, Rank: -1, Detail: why}
	var lost, waiting []*events.WorkerView
	var first *events.WorkerView // whom the loss is charged to: a member, if one is lost
	members := 0
	for i := range t.View.Workers {
		w := &t.View.Workers[i]
		switch {
		case w.Place.Node != node || !theirs(w):
		case !w.State.Ended():
			if first == nil || (members == 0 && t.member(w)) {
				first = w
			}
			if t.member(w) {
				members++
				cause.Place, cause.Rank = &w.Place, w.Rank
			}
			t.end1(w, events.WorkerStateLost, why, nil)
			lost = append(lost, w)
		case t.Notes[w.Place.String()].Verdict == respawned:
			waiting = append(waiting, w)
		}
	}
	if members != 1 {
		cause.Place, cause.Rank = nil, -1
	}
	if cause.Place != nil {
		p := *cause.Place
		cause.Place = &p
	}
	if t.View.State != events.JobStateWaiting && t.View.State != events.JobStateRunning {
		return
	}
	if members > 0 {
		t.broke(cause)
	}
	if len(lost) > 0 && !how.planned {
		t.nodeSpan(node, lost[0].Agent, why)
	}
	paid := slices.ContainsFunc(lost, func(w *events.WorkerView) bool { return t.Notes[w.Place.String()].Charged == w.Incarnation })
	paid = paid || (how.by != "" && t.Nodes[node].Restarted == how.by)
	if first != nil && !paid && !how.spared {
		g := events.Generation(0)
		if members > 0 {
			g = t.View.Generation
		}
		if how.by != "" {
			n := t.Nodes[node]
			n.Restarted = how.by
			t.Nodes[node] = n
		}
		if !t.charge(first, g, t.silentFault(events.FailureLost, members > 0)) {
			return
		}
	}
	for _, w := range append(lost, waiting...) {
		t.blame(w, why)
	}
	if members > 0 {
		t.startAgain()
	}
}

// nodeIsGone tells whether the node is known to be gone together with this worker.
func (t *turn) nodeIsGone(w *events.WorkerView) bool {
	n := t.Nodes[w.Place.Node]
	return (n.Gone != "" && w.Agent <= n.Gone) || (w.Agent != "" && w.Agent < n.Came)
}

// Concerns tells whether the job may have something on a node: a worker or a place, or that it thinks of it as gone.
func (s State) Concerns(n events.NodeID) bool {
	if s.View.State == "" || s.View.State.Terminal() {
		return false
	}
	if s.Nodes[n].Gone != "" {
		return true
	}
	for i := range s.View.Workers {
		if s.View.Workers[i].Place.Node == n {
			return true
		}
	}
	for _, p := range s.Placed.Places {
		if p.Node == n {
			return true
		}
	}
	return false
}
