package round

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/english"
)

// applyToNodes applies inputs that concern only jobs with self-registered nodes, before they are
// applied to the members.
func (t *transition) applyToNodes() {
	switch b := t.in.Body.(type) {
	case events.JobSubmitted:
		t.submitted(b)
	case events.NodeEnter:
		t.reply(t.enter(b))
	case events.NodeExit:
		t.reply(t.exit(b))
	case events.RendezvousClose:
		t.reply(t.closeRendezvous(b))
	case events.Heartbeat:
		t.keepAlive(b)
	case events.NodeEvent:
		t.applyNodeFact(b)
	}
}

func (t *transition) answerClosed(b events.Body) {
	a := events.NodeMembership{RendezvousStatus: events.RendezvousStatus{Job: t.View.Job, Closed: true}, Membership: events.MembershipOver, Reason: t.Stopping.Reason}
	switch b := b.(type) {
	case events.NodeEnter:
		a.Node = b.Node
	case events.NodeExit:
		a.Node = b.Node
	}
	t.d.Reply = a
}

// submitted opens the rendezvous of self-registered nodes. Other jobs wait for their placement.
func (t *transition) submitted(b events.JobSubmitted) {
	if !b.Spec.SelfRegistered() || t.Nodes != nil || t.Nonce != "" {
		return
	}
	t.Nodes, t.Spec, t.Nonce = &NodeRendezvous{}, b.Spec, t.in.Nonce
	t.Workers = b.Spec.Workers
}

// enter registers a node, or answers with its status. It is idempotent.
func (t *transition) enter(b events.NodeEnter) (events.NodeMembership, error) {
	x := t.Nodes
	if x == nil {
		return t.refuseUnknown()
	}
	if bad := t.Spec.Differs(b.Spec.WithDefaults()); len(bad) > 0 {
		var all []error
		for _, f := range bad {
			all = append(all, errors.New(f.String()))
		}
		return events.NodeMembership{}, errcode.Errorf(errcode.Conflict, "%s is another job than this node means: %w", b.Job, errors.Join(all...))
	}
	if need := t.Spec.Rendezvous.WorkersPerNode; b.Slots < need {
		return events.NodeMembership{}, errcode.Errorf(errcode.Invalid, "node %s has %s, the job has %s per node", b.Node, english.Plural(b.Slots, "slot"), english.Plural(need, "worker"))
	}
	if t.Stopping != nil || t.Finishing {
		return t.membership(b.Node), nil
	}
	if i := x.find(b.Node); i >= 0 && x.Candidates[i].Agent > b.Incarnation {
		return events.NodeMembership{}, errcode.Errorf(errcode.Fenced, "node %s has a newer agent than %s", b.Node, b.Incarnation)
	}
	if x.Lost[b.Node] >= b.Incarnation {
		return events.NodeMembership{}, errcode.Errorf(errcode.Unavailable, "node %s counts as lost: it must say hello to discovery first", b.Node)
	}
	t.replaceNode(b.Node, b.Incarnation)
	put(&t.Agents, b.Node, max(t.Agents[b.Node], b.Incarnation)) // so that the loss of an older incarnation leaves its members alone
	switch i := x.find(b.Node); {
	case i >= 0:
		x.Candidates[i].ExpiresAt = zeroTime // the request proves that the node is alive
	case x.Removed[b.Node].Agent == b.Incarnation && b.Incarnation != "":
	case x.Closed != "":
		put(&x.Removed, b.Node, RemovedNode{Agent: b.Incarnation, Membership: events.MembershipClosed, Reason: x.Closed})
	default:
		delete(x.Removed, b.Node)
		x.Candidates = append(x.Candidates, Candidate{Node: b.Node, Agent: b.Incarnation, JoinBy: t.now.Add(t.Spec.Rendezvous.JoinTimeout.D())})
	}
	t.runRendezvous("node " + string(b.Node) + " came")
	return t.membership(b.Node), nil
}

// refuseUnknown refuses a request for a job without job.submitted, which may never come. Nothing is
// stored, so that requests for unknown jobs cannot fill the bucket.
func (t *transition) refuseUnknown() (events.NodeMembership, error) {
	t.d.Forget = t.Nonce == "" && t.Stopping == nil
	return events.NodeMembership{}, errcode.Errorf(errcode.NotFound, "the rendezvous does not know job %s, or it is not one that nodes join by themselves", t.View.Job)
}

// exit is TorchElastic's exit operation: a participant is removed, other nodes have nothing to
// leave. It does not close the job for the others, unlike a TorchElastic agent that gives up.
func (t *transition) exit(b events.NodeExit) (events.NodeMembership, error) {
	x := t.Nodes
	if x == nil {
		return t.refuseUnknown()
	}
	if i := x.find(b.Node); i >= 0 && x.Candidates[i].Agent == b.Incarnation {
		x.evict(i, events.MembershipLeft, b.Reason, *t.Spec.Rendezvous, t.now)
		t.runRendezvous(fmt.Sprintf("node %s leaves: %s", b.Node, b.Reason))
	}
	return t.membership(b.Node), nil
}

// closeRendezvous is TorchElastic's close operation. It cannot be undone.
func (t *transition) closeRendezvous(b events.RendezvousClose) (events.NodeMembership, error) {
	x := t.Nodes
	if x == nil {
		return t.refuseUnknown()
	}
	if x.Closed == "" {
		x.Closed = "the rendezvous is closed"
		if b.Reason != "" {
			x.Closed += ": " + b.Reason
		}
		t.runRendezvous(x.Closed)
		t.publishParticipants(x.Closed, nil)
	}
	return t.membership(""), nil
}

// applyNodeFact applies a fact about a self-registered node, before its members do.
func (t *transition) applyNodeFact(b events.NodeEvent) {
	x, n := t.Nodes, b.Fact()
	if x == nil || t.Superseded(n.Node, t.in.Number) { // the members record the number
		return
	}
	switch b.(type) {
	case events.NodeJoined:
		delete(x.Lost, n.Node)
		t.replaceNode(n.Node, n.Incarnation)
	case events.NodeRecovered:
		delete(x.Lost, n.Node)
	case events.NodeLost:
		t.removeNode(n, events.CauseNodeLost)
	case events.NodeLeft:
		t.removeNode(n, events.CauseShrink)
	}
	i := x.find(n.Node)
	if i < 0 || x.Candidates[i].Agent != n.Incarnation {
		return
	}
	c := &x.Candidates[i]
	switch b.(type) {
	case events.NodeJoined, events.NodeRecovered:
		c.ExpiresAt = zeroTime
	case events.NodeSuspected:
		if c.ExpiresAt.IsZero() {
			c.ExpiresAt = t.now.Add(t.Spec.Rendezvous.KeepAlive())
		}
	case events.NodeDraining:
		x.evict(i, events.MembershipLeft, "the node drains", *t.Spec.Rendezvous, t.now)
		t.runRendezvous("node " + string(n.Node) + " drains")
	}
}

// removeNode removes a node that discovery has declared gone: TorchElastic's sanitise, except that
// the other nodes are notified.
func (t *transition) removeNode(n events.NodeFact, kind events.CauseKind) {
	x := t.Nodes
	put(&x.Lost, n.Node, max(x.Lost[n.Node], n.Incarnation))
	if x.Removed[n.Node].Agent <= n.Incarnation {
		delete(x.Removed, n.Node)
	}
	if i := x.find(n.Node); i >= 0 && x.Candidates[i].Agent <= n.Incarnation {
		x.remove(i, *t.Spec.Rendezvous, t.now)
		detail := "node " + string(n.Node) + " is gone"
		t.loseNode(n.Node, kind, detail, func(*Member) bool { return true }, false)
		t.runRendezvous(detail, n.Node)
	}
}

// replaceNode removes an incarnation of a node that a newer one has replaced, with its workers.
func (t *transition) replaceNode(n ident.NodeID, inc ident.Incarnation) {
	x := t.Nodes
	detail := "the agent of node " + string(n) + " was started again"
	// Also if it was removed before.
	t.loseNode(n, events.CauseNodeLost, detail, func(x *Member) bool { return olderAgent(x, inc) }, false)
	if i := x.find(n); i >= 0 && x.Candidates[i].Agent < inc {
		x.remove(i, *t.Spec.Rendezvous, t.now)
		t.loseNode(n, events.CauseNodeLost, detail, func(*Member) bool { return true }, false)
		t.runRendezvous(detail, n)
	}
}

// expireNodes removes nodes that were suspected for too long without a decision or a heartbeat.
func (t *transition) expireNodes() {
	x := t.Nodes
	for i := 0; i < len(x.Candidates); i++ {
		c := x.Candidates[i]
		a := x.expiry(c, *t.Spec.Rendezvous, t.now)
		if a != opExpire {
			x.apply(a, i, *t.Spec.Rendezvous, t.now)
			continue
		}
		x.remove(i, *t.Spec.Rendezvous, t.now)
		detail := fmt.Sprintf("node %s gave no sign for %s", c.Node, t.Spec.Rendezvous.KeepAlive())
		t.loseNode(c.Node, events.CauseNodeLost, detail, func(*Member) bool { return true }, false)
		t.runRendezvous(detail, c.Node)
		t.republish(c.Node)
		i = -1 // the list has changed: begin again
	}
}

// updateRendezvous advances the rendezvous to the present and notifies waiting nodes of changes.
func (t *transition) updateRendezvous() {
	if t.Nodes == nil || t.Stopping != nil || t.Finishing {
		return
	}
	t.expireNodes()
	t.abandonIfEmpty()
	t.runRendezvous("nodes have come together")
	g := t.rendezvousStatus()
	if v := t.View.Rendezvous; v == nil || v.RendezvousStatus != g {
		if t.View.Rendezvous != nil || g.Nodes > 0 {
			status := g
			if d := t.Nodes.Deadline; !d.IsZero() {
				status.LastCallMS = events.Milliseconds(d.Sub(t.now))
			}
			t.d.Hints = append(t.d.Hints, events.Signal{Subject: events.RendezvousStatusSubject(t.View.Job), Body: status})
		}
	}
	t.View.Rendezvous = &events.RendezvousView{
		RendezvousStatus: g, Participants: t.Nodes.nodes(participant), WaitList: t.Nodes.nodes(waiting),
		SpareList: t.Nodes.nodes(spare), LastCall: t.Nodes.Deadline, Placed: t.placedNodes(), Abandoned: t.Nodes.Abandoned,
	}
}

func (t *transition) rendezvousStatus() events.RendezvousStatus {
	x, r := t.Nodes, t.Spec.Rendezvous
	return events.RendezvousStatus{
		Job: t.View.Job, Round: x.Round, Complete: x.Complete, Nodes: x.count(participant), Min: r.Nodes.Min, Max: r.Nodes.Max,
		Waiting: x.count(waiting), Spares: x.count(spare), Closed: x.Closed != "",
	}
}

// abandonIfEmpty abandons a job whose lists have all been empty for as long as a node waits for
// others, and that never had a generation. Its nodes have timed out or left, and it would wait for
// ever.
func (t *transition) abandonIfEmpty() {
	x, limit := t.Nodes, t.Spec.Rendezvous.JoinTimeout.D()
	switch {
	case len(x.Candidates) > 0 || t.View.Generation > 0 || x.Closed != "":
		x.AbandonAt = zeroTime
	case x.AbandonAt.IsZero():
		x.AbandonAt = t.now.Add(limit)
	case t.now.After(x.AbandonAt.Add(rollback)):
		x.AbandonAt = t.now.Add(rollback) // no replica was running: a node may be about to register
	case !t.now.Before(x.AbandonAt):
		x.AbandonAt = zeroTime
		x.Closed = fmt.Sprintf("no node was in it for %s (rendezvous.joinTimeout)", limit)
		x.Abandoned = true
		t.runRendezvous(x.Closed)
		t.publishParticipants(x.Closed, nil)
	}
}

// runRendezvous runs the rendezvous of the nodes and makes the participants' slots the job's
// places; from there on the job is treated as if the scheduler had placed it. Until a round is
// complete the places are those of the survivors.
func (t *transition) runRendezvous(reason string, lostNodes ...ident.NodeID) {
	x := t.Nodes
	before := maps.Clone(x.Removed)
	settle := t.Spec.Elastic.Settle.D()
	if !t.restart() || t.open() && t.View.Generation > 0 {
		settle = 0 // newcomers prefetch the state, and members wait for each other; or the group restarts anyway
	}
	x.process(*t.Spec.Rendezvous, settle, t.now)
	for n, o := range x.Removed {
		if before[n] != o {
			t.republish(n)
		}
	}
	have := t.placedNodes()
	want := x.nodes(participant)
	if !x.Complete {
		want = slices.DeleteFunc(want, func(n ident.NodeID) bool { return !slices.Contains(have, n) })
	}
	slices.Sort(want)
	if slices.Equal(want, have) {
		return
	}
	t.place(events.PlacementSet{
		Job: t.View.Job, Workers: t.Workers, Spec: t.Spec, Places: t.placesOn(want), LostNodes: lostNodes, Reason: reason,
	})
	if t.restart() && t.Growth != nil {
		t.Growth.By = t.now // the newcomers have waited for each other
	}
	t.publishParticipants(reason, lostNodes)
}

// placedNodes returns the nodes that keep their members, by name, which is the order of members.
func (t *transition) placedNodes() []ident.NodeID {
	return t.nodes(func(x *Member) bool { return !x.Leaving })
}

func (t *transition) placesOn(nodes []ident.NodeID) []ident.Place {
	var out []ident.Place
	for _, n := range nodes {
		for s := range t.Spec.Rendezvous.WorkersPerNode {
			out = append(out, ident.Place{Node: n, Slot: ident.Slot(s)})
		}
	}
	return out
}

func (t *transition) publishParticipants(reason string, lostNodes []ident.NodeID) {
	x := t.Nodes
	t.publish(events.RoundParticipantsSet{
		Job: t.View.Job, Round: x.Round, Nodes: x.nodes(participant), Places: t.places(func(y *Member) bool { return !y.Leaving }), Workers: t.Workers, Reason: reason,
		LostNodes: lostNodes, Closed: x.Closed != "", Abandoned: x.Abandoned,
	})
}

func (t *transition) membership(n ident.NodeID) events.NodeMembership {
	a := events.NodeMembership{RendezvousStatus: t.rendezvousStatus(), Node: n}
	x := t.Nodes
	if d := x.Deadline; !d.IsZero() {
		a.LastCallMS = events.Milliseconds(d.Sub(t.now))
	}
	out, isOut := x.Removed[n]
	switch i := x.find(n); {
	case t.Stopping != nil:
		a.Membership, a.Reason = events.MembershipOver, t.Stopping.Reason
	case t.Finishing && i < 0:
		a.Membership, a.Reason = events.MembershipOver, "the training is complete"
	case i >= 0 && x.Candidates[i].List == waiting:
		a.Membership = events.MembershipWaiting
	case i >= 0 && x.Candidates[i].List == spare:
		a.Membership = events.MembershipSpare
	case i >= 0:
		a.Membership = events.MembershipParticipant
	case isOut:
		a.Membership, a.Reason = out.Membership, out.Reason
	case x.Closed != "":
		a.Membership, a.Reason = events.MembershipClosed, x.Closed
	default:
		a.Membership, a.Reason = events.MembershipLeft, "it is not in the job"
	}
	return a
}

// HasCandidate reports whether a node has registered itself for this job.
func (s State) HasCandidate(n ident.NodeID) bool { return s.Nodes != nil && s.Nodes.find(n) >= 0 }

// countsAsLost reports whether a self-registered node counts as lost. It is refused until the fact
// of its return arrives, and it may have no launch yet.
func (s State) countsAsLost(n ident.NodeID) bool { return s.Nodes != nil && s.Nodes.Lost[n] != "" }

// KeepsAlive reports whether a heartbeat is from a node that is about to expire.
func (s State) KeepsAlive(h events.Heartbeat) bool {
	if s.Nodes == nil || s.closed() {
		return false
	}
	i := s.Nodes.find(h.Node)
	return i >= 0 && !s.Nodes.Candidates[i].ExpiresAt.IsZero() && s.Nodes.Candidates[i].Agent == h.Incarnation
}

// keepAlive applies such a heartbeat.
func (t *transition) keepAlive(h events.Heartbeat) {
	if t.KeepsAlive(h) {
		t.Nodes.Candidates[t.Nodes.find(h.Node)].ExpiresAt = time.Time{}
	}
}

// removalReason is the reason given in the stop of a node that is in no list any more.
func (s *State) removalReason(n ident.NodeID) string {
	if s.Nodes != nil {
		if o, ok := s.Nodes.Removed[n]; ok {
			return o.Reason
		}
	}
	return noPlaceReason
}
