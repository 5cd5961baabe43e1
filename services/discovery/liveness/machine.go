// Package liveness decides whether a node is alive. The entity is the node; each step of the
// Machine applies one observation.
//
//	             hello                 silence
//	  (unknown) ───────► ready ◄──────────────────► suspected
//	                     │  ▲        heard, hello      │
//	       bye           │  │ hello                    │ silence, the ping failed too
//	left ◄───────────────┤  └───────── lost ◄──────────┘
//	  └── hello of a new incarnation ──► ready
//
// An incarnation that was replaced stays fenced: its messages are ignored. A lost node may return
// as the same incarnation, because it may only have been silent; one that has said goodbye may not.
// Draining is a property of the node, not of the agent's incarnation: it survives a restart of the
// agent until it is undone.
//
// Quarantine is independent of these states and survives restarts of the agent, too:
//
//	          several failures counted within the window        the cool-down is over, or by hand
//	slot in use ──────────────────────────────────────► quarantined ─────────────────────────────► in use
//	          several slots quarantined, or lost too often      the same
//	node in use ──────────────────────────────────────► quarantined ─────────────────────────────► in use
//
// The first cool-down has the configured length, each further one is twice as long, and an hour
// without failures undoes one doubling. Each incarnation of a worker counts once. Planned
// departures and losses while the node drains do not count, and a program that crashes repeatedly
// without progress counts once, so that debugging a script costs no slots; nor does what fails on
// other slots too, of the same job or submitter. The last slot is never quarantined, nor more than
// a share of all, except by hand or for a fault of its GPU. Failures count per slot
// first: one failed process never costs a node its other slots (Horovod blacklists the host, never
// forgets, and begins with two to three times the delay that it documents).
//
// The host list is independent as well: a node that it does not name is excluded, one that it names
// has at most the number of slots that it gives.
//
// HeartbeatTracker has the part that is not stored: how long nodes have been silent, as one replica
// of discovery hears it. It decides nothing.
package liveness

import (
	"cmp"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/leases"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/english"
)

// replacedKept is how many replaced incarnations of a node stay fenced by name.
const replacedKept = 16

// leftKept is how many incarnations with a planned end every fact names. A reader that has missed
// more of them may take one for a failure.
const leftKept = 4

// State is one node. Its view is public.
type State struct {
	View     events.NodeView     `json:"view"`
	Replaced []ident.Incarnation `json:"replaced,omitempty"` // replaced, oldest first
	Drain    string              `json:"drain,omitempty"`    // the reason if it drains by a command

	Slots  map[ident.Slot]History `json:"slots,omitempty"` // counted failures of single slots
	Losses History                `json:"losses,omitzero"` // and losses of the whole node
	// The node is quarantined because its slots are.
	ForSlots bool `json:"for_slots,omitempty"`
	// Newest worker incarnations whose failure was counted, oldest first.
	CountedWorkers []ident.Incarnation `json:"counted_workers,omitempty"`
	Measured       Measured            `json:"measured,omitzero"` // what was decided of the GPUs' figures
	// Of earlier incarnations with other state folders: this one says nothing about their
	// processes.
	OtherLeases leases.Ends `json:"other_leases,omitzero"`
	// GPUs of the slots as in the newest fact: one of an earlier version of discovery has none.
	PublishedGPUs []devices.Slots `json:"published_gpus,omitempty"`
	// Newest connection of this incarnation that the broker saw close.
	ClosedLink broker.Link `json:"closed_link,omitzero"`
}

// Machine decides about nodes.
type Machine struct {
	// KeepFor is how long a node that is lost or has left stays in the bucket; 0 = for ever. A
	// draining node always stays.
	KeepFor time.Duration
	Rules   Rules // of quarantine; zero = only by hand
	Lease   Lease // of agents; zero = none
}

// New returns the state of an unknown node.
func (Machine) New(entity string) State {
	return State{View: events.NodeView{Node: ident.NodeID(entity)}}
}

// Deadline returns when a quarantine ends, or when a gone node may be removed.
func (m Machine) Deadline(s State) time.Time {
	if until := s.quarantineEnd(); !until.IsZero() {
		return until
	}
	return m.forgetAt(s)
}

// forgetAt returns when a gone node may be removed: not while it is drained or quarantined.
func (m Machine) forgetAt(s State) time.Time {
	if m.KeepFor == 0 || s.alive() || s.View.State == "" || s.Drain != "" || !s.quarantineEnd().IsZero() {
		return time.Time{}
	}
	return s.View.Since.Add(m.KeepFor)
}

// Step applies one observation, request or command.
func (m Machine) Step(s State, in events.Input, now time.Time) (State, events.Decision) {
	t := transition{m: m, s: s, in: in, now: now}
	switch b := in.Body.(type) {
	case events.NodeHello:
		t.hello(b)
	case events.NodeLeave:
		t.leave(b)
	case events.NodeDrain:
		t.drain(b)
	case events.HeartbeatMissed:
		t.heartbeatMissed(b)
	case events.Disconnected:
		t.disconnected(b)
	case events.HeartbeatSeen:
		t.heartbeatSeen(b)
	case events.NodeQuarantine:
		t.quarantineByHand(b)
	case events.NodeRelease:
		t.release(b)
	case events.JobFailureCounted:
		t.failureCounted(b)
	case events.HostEntry:
		t.applyHostEntry(b)
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

// transition is one Step in progress.
type transition struct {
	m   Machine
	s   State
	in  events.Input
	now time.Time
	d   events.Decision
}

func (t *transition) hello(b events.NodeHello) {
	v := &t.s.View
	switch {
	case b.Incarnation == "":
		t.refuse(errcode.Invalid, "node %s says hello without an incarnation", v.Node)
		return
	case b.Slots < 0:
		t.refuse(errcode.Invalid, "node %s says that it has %s", v.Node, english.Plural(b.Slots, "slot"))
		return
	case slices.Contains(t.s.Replaced, b.Incarnation):
		t.refuse(errcode.Fenced, "incarnation %s of node %s was replaced by %s", b.Incarnation, v.Node, v.Incarnation)
		return
	case b.Incarnation == v.Incarnation && v.State == events.NodeStateLeft:
		t.refuse(errcode.Fenced, "incarnation %s of node %s has said goodbye: come back as a new one", b.Incarnation, v.Node)
		return
	case b.Incarnation != v.Incarnation && t.s.alive() && !slices.Contains(b.Predecessors, v.Incarnation):
		t.refuse(errcode.Conflict, "node %s has a living agent with another state folder, %s: this one waits until it is gone, or needs another name (--node, REGROUP_AGENT_NODE)", v.Node, v.Incarnation)
		return
	}
	w := welcome(v.Node, b.FleetSize)
	defer func() {
		w.TimesLost = v.TimesLost
		t.d.Reply = w
	}()
	t.expire()
	if b.HostEntry != nil && !t.s.alive() {
		t.setHostEntry(*b.HostEntry)
	}
	same := b.Incarnation == v.Incarnation
	changed := b.Slots != v.Slots || b.Address != v.Address || t.s.newGPUs(b)
	v.Version = b.Version // for people: no fact tells it
	if same {
		if t.noteConnection(b.Link) {
			return
		}
		t.announceDeparture(b.Departing)
		v.GPUs = b.GPUs
		t.noteFigures(b.Preflight)
		t.noteSpares(b.Spares)
	}
	reason := "came"
	switch {
	case same && v.State == events.NodeStateReady && !changed:
		t.judgeFigures()
		t.judgeGPUs()
		return
	case same && v.State == events.NodeStateSuspected && !changed:
		t.recover("said hello again")
		t.judgeGPUs()
		return
	case same && v.State == events.NodeStateLost:
		reason = "came back after it was lost"
	case same:
		reason = "has changed its slots, GPUs or address"
	case v.State != "":
		reason = "came back as a new incarnation"
		if t.s.alive() {
			t.setState(events.NodeStateLost, "replaced by its new incarnation "+string(b.Incarnation))
			t.endLease(0, b.FleetSize, b.Several)
			t.endedBy(b)
			t.publishLost(b.Silence)
		}
	}
	if !same {
		t.endedBy(b)
		t.newIncarnation(b)
	}
	v.Slots, v.Address = b.Slots, b.Address
	t.setState(events.NodeStateReady, reason)
	t.judgeFigures() // first, so that no job gets a slot that is about to be quarantined
	t.judgeGPUs()
	t.publish(events.NodeJoined{NodeFact: t.fact()})
	t.draining()
}

func (t *transition) leave(b events.NodeLeave) {
	v := &t.s.View
	switch {
	case slices.Contains(t.s.Replaced, b.Incarnation):
		t.refuse(errcode.Fenced, "incarnation %s of node %s was replaced by %s", b.Incarnation, v.Node, v.Incarnation)
		return
	case v.State == "" || b.Incarnation != v.Incarnation:
		t.refuse(errcode.NotFound, "incarnation %s of node %s never said hello", b.Incarnation, v.Node)
		return
	}
	t.d.Reply = events.NodeWelcome{Node: v.Node}
	if v.State == events.NodeStateLeft {
		return
	}
	v.LeaseEnds = t.s.OtherLeases // its own processes have ended
	t.setState(events.NodeStateLeft, cmp.Or(b.Reason, "said goodbye"))
	t.publish(events.NodeLeft{NodeFact: t.fact()})
}

func (t *transition) drain(b events.NodeDrain) {
	v := &t.s.View
	switch {
	case v.State == "":
		t.refuse(errcode.NotFound, "there is no node %s", v.Node)
	case b.Undo == (t.s.Drain == ""): // no change
	case b.Undo:
		v.Draining, t.s.Drain = v.Departing != nil, ""
		if t.s.alive() {
			t.setState(v.State, "drain undone")
			t.publishState()
		}
	default:
		v.Draining, t.s.Drain = true, "draining"
		if b.Reason != "" {
			t.s.Drain += ": " + b.Reason
		}
		if t.s.alive() { // otherwise its next hello publishes it
			v.Reason = t.s.Drain
			t.draining()
		}
	}
}

func (t *transition) heartbeatMissed(b events.HeartbeatMissed) {
	v := &t.s.View
	if b.Incarnation != v.Incarnation {
		t.refuse(errcode.Fenced, "incarnation %s of node %s was silent, which is %s now", b.Incarnation, v.Node, v.Incarnation)
		return
	}
	if seenSince := t.known().SeenSince; seenSince != nil && seenSince(Incarnation{b.Node, b.Incarnation}, b.Silence.D()) {
		t.refuse(errcode.Fenced, "node %s was silent for %s, and was heard since", b.Node, b.Silence.D().Round(time.Millisecond))
		return
	}
	switch {
	case b.Failed && t.s.alive():
		why := "silent"
		if v.Disconnected {
			why = v.Reason
		}
		silence := b.Silence.D()
		if v.State != events.NodeStateSuspected { // a replica may have renewed the lease since
			silence = 0
		}
		t.endLease(silence, b.FleetSize, b.Several)
		v.TimesLost++
		t.setState(events.NodeStateLost, why+", and it did not answer a ping")
		if b.Unheard {
			t.publishLost(0) // it may be gone for long
		} else {
			t.publishLost(b.Silence.D())
		}
	case !b.Failed && v.State == events.NodeStateReady:
		t.setState(events.NodeStateSuspected, "silent")
		t.publish(events.NodeSuspected{NodeFact: t.fact()})
		t.draining()
	}
}

func (t *transition) heartbeatSeen(b events.HeartbeatSeen) {
	v := &t.s.View
	switch {
	case b.Incarnation != v.Incarnation:
		t.refuse(errcode.Fenced, "heard incarnation %s of node %s, which is %s now", b.Incarnation, v.Node, v.Incarnation)
	case t.noteConnection(b.Link):
	case v.State == events.NodeStateSuspected:
		t.recover("heard again")
	}
}

// recover ends a suspicion.
func (t *transition) recover(reason string) {
	t.setState(events.NodeStateReady, reason)
	t.publishState()
}

// publishState publishes the one fact that describes a live node. A draining one is never published
// as ready in between, because it would briefly get work.
func (t *transition) publishState() {
	switch {
	case t.s.View.Draining:
		t.draining()
	case t.s.View.State == events.NodeStateReady:
		t.publish(events.NodeRecovered{NodeFact: t.fact()})
	default:
		t.publish(events.NodeSuspected{NodeFact: t.fact()})
	}
}

// draining publishes that the node drains, if it does. The newest fact alone describes a node, so
// it is repeated after every other one.
func (t *transition) draining() {
	if t.s.View.Draining {
		f := t.fact()
		f.Reason = t.s.drainReason()
		t.publish(events.NodeDraining{NodeFact: f})
	}
}

// publishLost publishes that the node is gone after a silence, and its span.
func (t *transition) publishLost(silent time.Duration) {
	v := t.s.View
	t.publish(events.NodeLost{NodeFact: t.fact(), SilentMS: events.Milliseconds(silent)})
	if v.Departing == nil {
		t.countLoss()
	}
	t.d.Spans = append(t.d.Spans, events.Span{
		Service: events.ServiceDiscovery, Name: "node.lost", Self: tracing.NodeTrace(v.Node, v.Incarnation), Start: t.now, End: t.now, Error: v.Reason,
		Attributes: map[string]string{"node": string(v.Node), "incarnation": string(v.Incarnation)},
	})
}

func (t *transition) setState(s events.NodeState, reason string) {
	t.s.View.State, t.s.View.Reason, t.s.View.Since, t.s.View.Disconnected = s, reason, t.now, false
}

func (t *transition) fact() events.NodeFact { return t.s.View.Fact() }

func (t *transition) publish(b events.Body) {
	if n, ok := b.(events.NodeEvent); ok {
		t.s.PublishedGPUs = n.Fact().GPUs
	}
	t.d.Facts = append(t.d.Facts, events.Fact{Body: b})
}

func (t *transition) refuse(code errcode.Code, format string, args ...any) {
	t.d.Refusal = errcode.Errorf(code, format, args...)
}
