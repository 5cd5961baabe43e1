package liveness

import (
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
)

// keepPast is how many replaced incarnations of a node stay fenced by name.
const keepPast = 16

// keepParted is how many of those that went as planned every fact names: whoever was away longer than for so many lives of
// an agent may take one for a failure.
const keepParted = 4

// State is one node. Its view is public.
type State struct {
	View  events.NodeView      `json:"view"`
	Past  []events.Incarnation `json:"past,omitempty"`  // replaced, oldest first
	Drain string               `json:"drain,omitempty"` // why it drains at somebody's command

	Slots   map[events.Slot]History `json:"slots,omitempty"`   // what counts against single slots
	Losses  History                 `json:"losses,omitzero"`   // and against the whole node
	Charged []events.Incarnation    `json:"charged,omitempty"` // newest worker lives that were charged, oldest first
	Ended   events.Link             `json:"ended,omitzero"`    // newest connection of this life whose end the broker saw
}

// Machine judges nodes.
type Machine struct {
	// KeepFor is how long a node that is lost or has left stays on record; 0 = for ever. A draining one always does.
	KeepFor time.Duration
	Rules   Rules // of quarantine; zero = nobody is quarantined but by hand
}

// New returns a node that nobody has heard of.
func (Machine) New(entity string) State {
	return State{View: events.NodeView{Node: events.NodeID(entity)}}
}

// Deadline says when a quarantine ends, or when a node that is gone may be forgotten.
func (m Machine) Deadline(s State) time.Time {
	if until := s.until(); !until.IsZero() {
		return until
	}
	return m.forgetAt(s)
}

// forgetAt says when a node that is gone may be forgotten; one that somebody keeps out on purpose never is.
func (m Machine) forgetAt(s State) time.Time {
	if m.KeepFor == 0 || s.alive() || s.View.State == "" || s.Drain != "" || !s.until().IsZero() {
		return time.Time{}
	}
	return s.View.Since.Add(m.KeepFor)
}

// Step takes one observation, request or command into account.
func (m Machine) Step(s State, in events.Input, now time.Time) (State, events.Decision) {
	t := turn{m: m, s: s, in: in, now: now}
	switch b := in.Body.(type) {
	case events.NodeHello:
		t.hello(b)
	case events.NodeLeave:
		t.bye(b)
	case events.NodeDrain:
		t.drain(b)
	case events.HeartbeatMissed:
		t.silence(b)
	case events.Disconnected:
		t.cut(b)
	case events.HeartbeatSeen:
		t.heard(b)
	case events.NodeQuarantine:
		t.byHand(b)
	case events.NodeRelease:
		t.release(b)
	case events.JobFailureCounted:
		t.charged(b)
	case events.HostEntry:
		t.listed(b)
	case events.Tick:
		t.expire()
		if at := m.forgetAt(t.s); !at.IsZero() && !now.Before(at) {
			t.d.Forget = true
		}
	}
	return t.s, t.d
}

func (s State) alive() bool {
	return s.View.State == events.NodeStateReady || s.View.State == events.NodeStateSuspected
}

// turn is one Step in progress.
type turn struct {
	m   Machine
	s   State
	in  events.Input
	now time.Time
	d   events.Decision
}

func (t *turn) hello(b events.NodeHello) {
	v := &t.s.View
	switch {
	case b.Incarnation == "":
		t.refuse(events.Invalid, "node %s says hello without an incarnation", v.Node)
		return
	case b.Slots < 0:
		t.refuse(events.Invalid, "node %s says that it has %d slots", v.Node, b.Slots)
		return
	case slices.Contains(t.s.Past, b.Incarnation):
		t.refuse(events.Fenced, "incarnation %s of node %s was replaced by %s", b.Incarnation, v.Node, v.Incarnation)
		return
	case b.Incarnation == v.Incarnation && v.State == events.NodeStateLeft:
		t.refuse(events.Fenced, "incarnation %s of node %s has said goodbye: come back as a new one", b.Incarnation, v.Node)
		return
	}
	if b.Yield && b.Incarnation != v.Incarnation && t.s.alive() {
		t.refuse(events.Conflict, "node %s has a living agent, %s: this one waits until it is gone, or needs another name (--node)", v.Node, v.Incarnation)
		return
	}
	t.d.Reply = welcome(v.Node, b.FleetSize)
	t.expire()
	if b.HostEntry != nil && !t.s.alive() {
		t.allow(*b.HostEntry)
	}
	same := b.Incarnation == v.Incarnation
	changed := b.Slots != v.Slots || b.Address != v.Address
	if same && t.overheard(b.Link) {
		return
	}
	if same {
		t.departing(b.Departing)
	}
	switch {
	case same && v.State == events.NodeStateReady && !changed:
		return
	case same && v.State == events.NodeStateSuspected && !changed:
		t.recover("said hello again")
		return
	}
	reason := "came"
	switch {
	case same && v.State == events.NodeStateLost:
		reason = "came back after it was lost"
	case same:
		reason = "has changed its slots or address"
	case t.s.alive():
		t.become(events.NodeStateLost, "replaced by its new incarnation "+string(b.Incarnation))
		t.lost()
		reason = "came back as a new incarnation"
	case v.State != "":
		reason = "came back as a new incarnation"
	}
	if !same && v.Incarnation != "" {
		t.parted()
		t.s.Past = append(t.s.Past, v.Incarnation)
		t.s.Past = t.s.Past[max(0, len(t.s.Past)-keepPast):]
	}
	v.Incarnation, v.Slots, v.Address = b.Incarnation, b.Slots, b.Address
	if !same {
		t.newLife(b)
	}
	t.become(events.NodeStateReady, reason)
	t.tell(events.NodeJoined{NodeFact: t.fact()})
	t.draining()
}

func (t *turn) bye(b events.NodeLeave) {
	v := &t.s.View
	switch {
	case slices.Contains(t.s.Past, b.Incarnation):
		t.refuse(events.Fenced, "incarnation %s of node %s was replaced by %s", b.Incarnation, v.Node, v.Incarnation)
		return
	case v.State == "" || b.Incarnation != v.Incarnation:
		t.refuse(events.NotFound, "incarnation %s of node %s never said hello", b.Incarnation, v.Node)
		return
	}
	t.d.Reply = events.NodeWelcome{Node: v.Node}
	if v.State == events.NodeStateLeft {
		return
	}
	reason := b.Reason
	if reason == "" {
		reason = "said goodbye"
	}
	t.become(events.NodeStateLeft, reason)
	t.tell(events.NodeLeft{NodeFact: t.fact()})
}

func (t *turn) drain(b events.NodeDrain) {
	v := &t.s.View
	switch {
	case v.State == "":
		t.refuse(events.NotFound, "there is no node %s", v.Node)
	case b.Undo == (t.s.Drain == ""): // as it is
	case b.Undo:
		v.Draining, t.s.Drain = v.Departing != nil, ""
		if t.s.alive() {
			t.become(v.State, "drain undone")
			t.picture()
		}
	default:
		v.Draining, t.s.Drain = true, "draining"
		if b.Reason != "" {
			t.s.Drain += ": " + b.Reason
		}
		if t.s.alive() { // else its next hello tells
			v.Reason = t.s.Drain
			t.draining()
		}
	}
}

func (t *turn) silence(b events.HeartbeatMissed) {
	v := &t.s.View
	if b.Incarnation != v.Incarnation {
		t.refuse(events.Fenced, "incarnation %s of node %s was silent, which is %s now", b.Incarnation, v.Node, v.Incarnation)
		return
	}
	switch {
	case b.Failed && t.s.alive():
		why := "silent"
		if v.Disconnected {
			why = v.Reason
		}
		t.become(events.NodeStateLost, why+", and it did not answer a ping")
		t.lost()
	case !b.Failed && v.State == events.NodeStateReady:
		t.become(events.NodeStateSuspected, "silent")
		t.tell(events.NodeSuspected{NodeFact: t.fact()})
		t.draining()
	}
}

func (t *turn) heard(b events.HeartbeatSeen) {
	v := &t.s.View
	switch {
	case b.Incarnation != v.Incarnation:
		t.refuse(events.Fenced, "heard incarnation %s of node %s, which is %s now", b.Incarnation, v.Node, v.Incarnation)
	case t.overheard(b.Link):
	case v.State == events.NodeStateSuspected:
		t.recover("heard again")
	}
}

// recover ends a suspicion.
func (t *turn) recover(reason string) {
	t.become(events.NodeStateReady, reason)
	t.picture()
}

// picture tells the one fact that says all about a living node. A draining one is never told to be ready in between: it
// would be given work for an instant.
func (t *turn) picture() {
	switch {
	case t.s.View.Draining:
		t.draining()
	case t.s.View.State == events.NodeStateReady:
		t.tell(events.NodeRecovered{NodeFact: t.fact()})
	default:
		t.tell(events.NodeSuspected{NodeFact: t.fact()})
	}
}

// draining tells that the node drains, if it does: the newest fact alone says what a node is, so it is told again behind
// every other one.
func (t *turn) draining() {
	if t.s.View.Draining {
		f := t.fact()
		f.Reason = t.s.whyDraining()
		t.tell(events.NodeDraining{NodeFact: f})
	}
}

// lost tells that the node is gone, and draws it.
func (t *turn) lost() {
	v := t.s.View
	t.tell(events.NodeLost{NodeFact: t.fact()})
	if v.Departing == nil {
		t.flapped()
	}
	t.d.Spans = append(t.d.Spans, events.Span{
		Service: events.ServiceDiscovery, Name: "node.lost", Self: events.NodeTrace(v.Node, v.Incarnation), Start: t.now, End: t.now, Error: v.Reason,
		Attributes: map[string]string{"node": string(v.Node), "incarnation": string(v.Incarnation)},
	})
}

func (t *turn) become(s events.NodeState, reason string) {
	t.s.View.State, t.s.View.Reason, t.s.View.Since, t.s.View.Disconnected = s, reason, t.now, false
}

func (t *turn) fact() events.NodeFact { return t.s.View.Fact() }

func (t *turn) tell(b events.Body) { t.d.Facts = append(t.d.Facts, events.Fact{Body: b}) }

func (t *turn) refuse(code events.Code, format string, args ...any) {
	t.d.Refusal = events.Errorf(code, format, args...)
}
