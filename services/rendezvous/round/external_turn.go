package round

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
)

// external takes in what concerns only jobs whose nodes come by themselves, before the seats hear of it.
func (t *turn) external() {
	switch b := t.in.Body.(type) {
	case events.JobSubmitted:
		t.submitted(b)
	case events.NodeEnter:
		t.enter(b)
	case events.NodeExit:
		t.exit(b)
	case events.RendezvousClose:
		t.closeNodes(b)
	case events.Heartbeat:
		t.revive(b)
	case events.NodeJoined, events.NodeRecovered, events.NodeSuspected, events.NodeLost, events.NodeLeft, events.NodeDraining:
		t.nodeFact()
	}
}

// overExternal answers when the job has ended.
func (t *turn) overExternal(b events.Body) {
	a := events.NodeMembership{RendezvousStatus: events.RendezvousStatus{Job: t.View.Job, Closed: true}, Membership: events.MembershipOver, Reason: t.Stopping.Reason}
	switch b := b.(type) {
	case events.NodeEnter:
		a.Node = b.Node
	case events.NodeExit:
		a.Node = b.Node
	}
	t.d.Reply = a
}

// submitted opens the rendezvous of a job whose nodes come by themselves. Other jobs wait for their placement.
func (t *turn) submitted(b events.JobSubmitted) {
	if !b.Spec.External() || t.External != nil || t.Nonce != "" {
		return
	}
	t.External, t.Spec, t.Nonce = &External{}, b.Spec, t.in.Nonce
	t.Workers = b.Spec.Workers
}

// enter takes a node in, or answers what it is. Repeating it changes nothing.
func (t *turn) enter(b events.NodeEnter) {
	x := t.External
	if x == nil {
		t.unknown()
		return
	}
	if bad := t.Spec.Differs(b.Spec.WithDefaults()); len(bad) > 0 {
		all := make([]error, len(bad))
		for i, f := range bad {
			all[i] = errors.New(f.String())
		}
		t.d.Refusal = events.Errorf(events.Conflict, "%s is another job than this node means: %w", b.Job, errors.Join(all...))
		return
	}
	if need := t.Spec.Rendezvous.WorkersPerNode; b.Slots < need {
		t.d.Refusal = events.Errorf(events.Invalid, "node %s has %d slots, the job has %d workers per node", b.Node, b.Slots, need)
		return
	}
	if t.Stopping != nil || t.Finishing {
		t.answer(b.Node)
		return
	}
	if i := x.find(b.Node); i >= 0 && x.Comers[i].Agent > b.Incarnation {
		t.d.Refusal = events.Errorf(events.Fenced, "node %s has a newer agent than %s", b.Node, b.Incarnation)
		return
	}
	if x.Lost[b.Node] >= b.Incarnation {
		t.d.Refusal = events.Errorf(events.Unavailable, "node %s counts as lost: it must say hello to discovery first", b.Node)
		return
	}
	t.replaced(b.Node, b.Incarnation)
	if t.Agents == nil {
		t.Agents = map[events.NodeID]events.Incarnation{}
	}
	t.Agents[b.Node] = max(t.Agents[b.Node], b.Incarnation) // so that the loss of an older one does not touch its seats
	switch i := x.find(b.Node); {
	case i >= 0:
		x.Comers[i].Silent = zeroTime // a sign of life
	case x.Out[b.Node].Agent == b.Incarnation && b.Incarnation != "":
	case x.Closed != "":
		if x.Out == nil {
			x.Out = map[events.NodeID]Outcast{}
		}
		x.Out[b.Node] = Outcast{Agent: b.Incarnation, Standing: events.MembershipClosed, Reason: x.Closed}
	default:
		delete(x.Out, b.Node)
		x.Comers = append(x.Comers, Comer{Node: b.Node, Agent: b.Incarnation, By: t.now.Add(t.Spec.Rendezvous.JoinTimeout.D())})
	}
	t.gather("node " + string(b.Node) + " came")
	t.answer(b.Node)
}

// unknown refuses: job.submitted has not come yet, or never will. Nothing is remembered of who asks for a job by chance.
func (t *turn) unknown() {
	t.d.Refusal = events.Errorf(events.NotFound, "the rendezvous does not know job %s, or it is not one that nodes join by themselves", t.View.Job)
	t.d.Forget = t.Nonce == "" && t.Stopping == nil
}

// exit is upstream's exit op: a participant is removed, everybody else has nothing to leave. It does not close the job for
// the others, as a stock agent that gives up does.
func (t *turn) exit(b events.NodeExit) {
	x := t.External
	if x == nil {
		t.unknown()
		return
	}
	if i := x.find(b.Node); i >= 0 && x.Comers[i].Agent == b.Incarnation {
		x.cast(i, events.MembershipLeft, b.Reason, *t.Spec.Rendezvous, t.now)
		t.gather(fmt.Sprintf("node %s leaves: %s", b.Node, b.Reason))
	}
	t.answer(b.Node)
}

// closeNodes is upstream's close op. It is one-way.
func (t *turn) closeNodes(b events.RendezvousClose) {
	x := t.External
	if x == nil {
		t.unknown()
		return
	}
	if x.Closed == "" {
		x.Closed = "the rendezvous is closed"
		if b.Reason != "" {
			x.Closed += ": " + b.Reason
		}
		t.gather(x.Closed)
		t.gathered(x.Closed, nil)
	}
	t.answer("")
}

// nodeFact takes in what discovery says about a node that came by itself, before the seats hear of it.
func (t *turn) nodeFact() {
	x := t.External
	if x == nil {
		return
	}
	about := func(n events.NodeFact, fn func(c *Comer)) {
		if i := x.find(n.Node); i >= 0 && x.Comers[i].Agent == n.Incarnation {
			fn(&x.Comers[i])
		}
	}
	late := func(n events.NodeID) bool { return t.Overtaken(n, t.in.Number) } // the seats remember the number
	switch b := t.in.Body.(type) {
	case events.NodeJoined:
		if !late(b.Node) {
			delete(x.Lost, b.Node)
			t.replaced(b.Node, b.Incarnation)
			about(b.NodeFact, func(c *Comer) { c.Silent = zeroTime })
		}
	case events.NodeRecovered:
		if !late(b.Node) {
			delete(x.Lost, b.Node)
			about(b.NodeFact, func(c *Comer) { c.Silent = zeroTime })
		}
	case events.NodeSuspected:
		if !late(b.Node) {
			about(b.NodeFact, func(c *Comer) {
				if c.Silent.IsZero() {
					c.Silent = t.now.Add(t.Spec.Rendezvous.KeepAlive())
				}
			})
		}
	case events.NodeLost:
		if !late(b.Node) {
			t.nodeOut(b.NodeFact, events.CauseNodeLost)
		}
	case events.NodeLeft:
		if !late(b.Node) {
			t.nodeOut(b.NodeFact, events.CauseShrink)
		}
	case events.NodeDraining:
		if i := x.find(b.Node); i >= 0 && x.Comers[i].Agent == b.Incarnation && !late(b.Node) {
			x.cast(i, events.MembershipLeft, "the node drains", *t.Spec.Rendezvous, t.now)
			t.gather("node " + string(b.Node) + " drains")
		}
	}
}

// nodeOut takes a node out that discovery says is gone: upstream's sanitise, but the others hear of it.
func (t *turn) nodeOut(n events.NodeFact, kind events.CauseKind) {
	x := t.External
	if x.Lost == nil {
		x.Lost = map[events.NodeID]events.Incarnation{}
	}
	x.Lost[n.Node] = max(x.Lost[n.Node], n.Incarnation)
	if x.Out[n.Node].Agent <= n.Incarnation {
		delete(x.Out, n.Node)
	}
	if i := x.find(n.Node); i >= 0 && x.Comers[i].Agent <= n.Incarnation {
		x.remove(i, *t.Spec.Rendezvous, t.now)
		detail := "node " + string(n.Node) + " is gone"
		t.loseNode(n.Node, kind, detail, func(*Seat) bool { return true }, false)
		t.gather(detail, n.Node)
	}
}

// replaced takes out the life of a node that a newer one has replaced: its workers are gone with it.
func (t *turn) replaced(n events.NodeID, inc events.Incarnation) {
	x := t.External
	detail := "the agent of node " + string(n) + " was started again"
	t.loseNode(n, events.CauseNodeLost, detail, func(x *Seat) bool { return older(x, inc) }, false) // also if it was cast out
	if i := x.find(n); i >= 0 && x.Comers[i].Agent < inc {
		x.remove(i, *t.Spec.Rendezvous, t.now)
		t.loseNode(n, events.CauseNodeLost, detail, func(*Seat) bool { return true }, false)
		t.gather(detail, n)
	}
}

// expired takes out nodes that were suspected for too long without a verdict or a sign of life.
func (t *turn) expired() {
	x := t.External
	for i := 0; i < len(x.Comers); {
		c := x.Comers[i]
		a := x.expiry(c, *t.Spec.Rendezvous, t.now)
		if a != opExpire {
			x.do(a, i, *t.Spec.Rendezvous, t.now)
			i++
			continue
		}
		x.remove(i, *t.Spec.Rendezvous, t.now)
		detail := fmt.Sprintf("node %s gave no sign for %s", c.Node, t.Spec.Rendezvous.KeepAlive())
		t.loseNode(c.Node, events.CauseNodeLost, detail, func(*Seat) bool { return true }, false)
		t.gather(detail, c.Node)
		t.tellAgain(c.Node)
		i = 0
	}
}

// lookAround lets time do its part and tells those who wait what has changed.
func (t *turn) lookAround() {
	if t.External == nil || t.Stopping != nil || t.Finishing {
		return
	}
	t.expired()
	t.abandoned()
	t.gather("nodes have come together")
	g := t.gathering()
	if v := t.View.Rendezvous; v == nil || v.RendezvousStatus != g {
		if t.View.Rendezvous != nil || g.Nodes > 0 {
			said := g
			if d := t.External.Deadline; !d.IsZero() {
				said.LastCallMS = events.Milliseconds(d.Sub(t.now))
			}
			t.d.Hints = append(t.d.Hints, events.Signal{Subject: events.GatheringSubject(t.View.Job), Body: said})
		}
	}
	t.View.Rendezvous = &events.RendezvousView{
		RendezvousStatus: g, Participants: t.External.nodes(participant), WaitList: t.External.nodes(waiting),
		SpareList: t.External.nodes(spare), LastCall: t.External.Deadline, Placed: t.placedNodes(), Abandoned: t.External.Abandoned,
	}
}

func (t *turn) gathering() events.RendezvousStatus {
	x, r := t.External, t.Spec.Rendezvous
	return events.RendezvousStatus{
		Job: t.View.Job, Round: x.Round, Complete: x.Complete, Nodes: x.count(participant), Min: r.Nodes.Min, Max: r.Nodes.Max,
		Waiting: x.count(waiting), Spares: x.count(spare), Closed: x.Closed != "",
	}
}

// abandoned gives up a job that has nobody in any list for as long as a node waits for others, and never had a generation: who came has timed
// out or left, and it would wait for ever.
func (t *turn) abandoned() {
	x, limit := t.External, t.Spec.Rendezvous.JoinTimeout.D()
	switch {
	case len(x.Comers) > 0 || t.View.Generation > 0 || x.Closed != "":
		x.EmptyBy = zeroTime
	case x.EmptyBy.IsZero():
		x.EmptyBy = t.now.Add(limit)
	case t.now.After(x.EmptyBy.Add(rollback)):
		x.EmptyBy = t.now.Add(rollback) // we were away ourselves: somebody may be about to come
	case !t.now.Before(x.EmptyBy):
		x.EmptyBy = zeroTime
		x.Closed = fmt.Sprintf("no node was in it for %s (rendezvous.joinTimeout)", limit)
		x.Abandoned = true
		t.gather(x.Closed)
		t.gathered(x.Closed, nil)
	}
}

// gather runs the rendezvous of the nodes; what it makes of them becomes the job's places, and from there on everything is
// as if the scheduler had placed it. Until a round is complete the places are those of the survivors.
func (t *turn) gather(reason string, gone ...events.NodeID) {
	x := t.External
	before := maps.Clone(x.Out)
	settle := t.Spec.Elastic.Settle.D()
	if !t.restart() {
		settle = 0 // newcomers warm up aside, and the seats wait for each other
	}
	x.run(*t.Spec.Rendezvous, settle, t.now)
	for n, o := range x.Out {
		if before[n] != o {
			t.tellAgain(n)
		}
	}
	have := t.placedNodes()
	want := x.nodes(participant)
	if !x.Complete {
		want = slices.DeleteFunc(want, func(n events.NodeID) bool { return !slices.Contains(have, n) })
	}
	slices.Sort(want)
	if slices.Equal(want, have) {
		return
	}
	t.place(events.PlacementSet{
		Job: t.View.Job, Workers: t.Workers, Spec: t.Spec, Places: t.placesOn(want), LostNodes: gone, Reason: reason,
	})
	if t.restart() && t.Grow != nil {
		t.Grow.By = t.now // they have waited for each other
	}
	t.gathered(reason, gone)
}

// placedNodes lists the nodes whose seats stay, by name: that is how seats are ordered.
func (t *turn) placedNodes() []events.NodeID {
	var out []events.NodeID
	for _, s := range t.Seats {
		if n := s.Place.Node; !s.Leaving && (len(out) == 0 || out[len(out)-1] != n) {
			out = append(out, n)
		}
	}
	return out
}

func (t *turn) placesOn(nodes []events.NodeID) []events.Place {
	var out []events.Place
	for _, n := range nodes {
		for s := range t.Spec.Rendezvous.WorkersPerNode {
			out = append(out, events.Place{Node: n, Slot: events.Slot(s)})
		}
	}
	return out
}

// gathered tells the registry which places the job has.
func (t *turn) gathered(reason string, gone []events.NodeID) {
	x := t.External
	var places []events.Place
	for _, s := range t.Seats {
		if !s.Leaving {
			places = append(places, s.Place)
		}
	}
	t.tell(events.RoundParticipantsSet{
		Job: t.View.Job, Round: x.Round, Nodes: x.nodes(participant), Places: places, Workers: t.Workers, Reason: reason,
		LostNodes: gone, Closed: x.Closed != "", Abandoned: x.Abandoned,
	})
}

// answer says what a node is.
func (t *turn) answer(n events.NodeID) {
	a := events.NodeMembership{RendezvousStatus: t.gathering(), Node: n}
	x := t.External
	if d := x.Deadline; !d.IsZero() {
		a.LastCallMS = events.Milliseconds(d.Sub(t.now))
	}
	out, isOut := x.Out[n]
	switch i := x.find(n); {
	case t.Stopping != nil:
		a.Membership, a.Reason = events.MembershipOver, t.Stopping.Reason
	case t.Finishing && i < 0:
		a.Membership, a.Reason = events.MembershipOver, "the training is complete"
	case i >= 0 && x.Comers[i].List == waiting:
		a.Membership = events.MembershipWaiting
	case i >= 0 && x.Comers[i].List == spare:
		a.Membership = events.MembershipSpare
	case i >= 0:
		a.Membership = events.MembershipParticipant
	case isOut:
		a.Membership, a.Reason = out.Standing, out.Reason
	case x.Closed != "":
		a.Membership, a.Reason = events.MembershipClosed, x.Closed
	default:
		a.Membership, a.Reason = events.MembershipLeft, "it is not in the job"
	}
	t.d.Reply = a
}

// Hosts tells whether a node has come to this job by itself.
func (s State) Hosts(n events.NodeID) bool { return s.External != nil && s.External.find(n) >= 0 }

// misses tells whether a node that came by itself counts as lost: it is refused until its return is heard, and it may have
// been told nothing yet.
func (s State) misses(n events.NodeID) bool { return s.External != nil && s.External.Lost[n] != "" }

// Revives tells whether a heartbeat is the sign of life of a node that is about to expire.
func (s State) Revives(h events.Heartbeat) bool {
	if s.External == nil || s.closed() {
		return false
	}
	i := s.External.find(h.Node)
	return i >= 0 && !s.External.Comers[i].Silent.IsZero() && s.External.Comers[i].Agent == h.Incarnation
}

// revive takes in such a heartbeat.
func (t *turn) revive(h events.Heartbeat) {
	if t.Revives(h) {
		t.External.Comers[t.External.find(h.Node)].Silent = time.Time{}
	}
}

// whyOut is what a node that is in no list any more is told with its stop.
func (s *State) whyOut(n events.NodeID) string {
	if s.External != nil {
		if o, ok := s.External.Out[n]; ok {
			return o.Reason
		}
	}
	return noPlace
}
