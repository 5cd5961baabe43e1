package liveness

import (
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spares"
	"github.com/regroup-io/regroup/internal/english"
)

// noteConnection records the connection over which a node was heard, and reports whether the
// message is stale: this connection, or a later one, is known to be closed.
func (t *transition) noteConnection(l broker.Link) (stale bool) {
	if t.s.ClosedLink.Known() && !l.After(t.s.ClosedLink) {
		return true
	}
	if l.After(t.s.View.Link) {
		t.s.View.Link = l
	}
	return false
}

// disconnected applies that the broker saw a connection close. It affects only a node that has
// reported no later connection. A goodbye precedes the close, so a node that leaves is not
// suspected.
func (t *transition) disconnected(b events.Disconnected) {
	v := &t.s.View
	switch {
	case b.Incarnation != v.Incarnation || !b.Link.Same(v.Link) && !b.Link.After(v.Link):
		t.refuse(errcode.Fenced, "a connection of node %s has ended, which speaks over another one now", v.Node)
		return
	case v.State == events.NodeStateLeft || v.Disconnected:
		return
	case b.Link.After(v.Link):
		v.Link = b.Link
	}
	t.s.ClosedLink = v.Link
	if !t.s.alive() {
		return
	}
	t.setState(events.NodeStateSuspected, "its connection has ended")
	v.Disconnected = true
	t.publish(events.NodeSuspected{NodeFact: t.fact()})
	t.draining()
}

// announceDeparture records what an incarnation of the agent has announced. It cannot be undone:
// the next incarnation begins without it.
func (t *transition) announceDeparture(d *events.Departure) {
	v := &t.s.View
	if d == nil || v.Departing != nil {
		return
	}
	v.Departing, v.Draining = d, true
	if t.s.alive() {
		v.Reason = t.s.drainReason()
		t.draining()
	}
}

// recordPlannedEnd records an incarnation with a planned end: a reader that learns of the next one
// first must not take it for a failure.
func (t *transition) recordPlannedEnd() {
	if v := &t.s.View; v.State == events.NodeStateLeft || v.Departing != nil {
		v.LeftIncarnations = append(slices.Clone(v.LeftIncarnations), v.Incarnation)
		v.LeftIncarnations = v.LeftIncarnations[max(0, len(v.LeftIncarnations)-leftKept):]
	}
}

// newIncarnation applies the hello of a new incarnation of the agent.
func (t *transition) newIncarnation(b events.NodeHello) {
	v := &t.s.View
	if v.Incarnation != "" {
		t.recordPlannedEnd()
		t.s.Replaced = append(t.s.Replaced, v.Incarnation)
		t.s.Replaced = t.s.Replaced[max(0, len(t.s.Replaced)-replacedKept):]
	}
	v.Incarnation, v.Link, t.s.ClosedLink, v.TimesLost, v.GPUs = b.Incarnation, b.Link, broker.Link{}, 0, b.GPUs
	t.noteFigures(b.Preflight)
	t.noteSpares(b.Spares)
	v.Departing = b.Departing
	v.Draining = v.Departing != nil || t.s.Drain != ""
}

// sparesKept is how many jobs of a node have their spares known.
const sparesKept = 128

// noteSpares takes what an agent says of its spares, for people: no fact tells it.
func (t *transition) noteSpares(kept []spares.Kept) {
	t.s.View.Spares = kept[:min(len(kept), sparesKept)]
}

// newGPUs reports whether the facts do not say yet which GPUs the slots have after a hello.
func (s State) newGPUs(b events.NodeHello) bool {
	v := s.View
	v.Slots, v.GPUs = b.Slots, b.GPUs
	return !slices.Equal(v.SlotGPUs(), s.PublishedGPUs)
}

func (s State) drainReason() string {
	if d := s.View.Departing; d != nil {
		return "departing: " + d.Reason
	}
	return s.Drain
}

// applyHostEntry applies the host list's entry of the node, a planned change of its slots.
func (t *transition) applyHostEntry(b events.HostEntry) {
	v := &t.s.View
	if v.State == "" {
		return
	}
	offers, excluded, order := v.AllocatableSlots(), v.Excluded, v.Order
	t.setHostEntry(b)
	if !t.s.alive() || (v.AllocatableSlots() == offers && (v.Excluded == "") == (excluded == "") && v.Order == order) {
		return // no relevant change; a gone node gets its entry with its next hello
	}
	f := t.fact()
	switch {
	case v.Excluded != "":
		f.Reason = "may not be used: " + v.Excluded
	case excluded != "":
		f.Reason = "may be used again"
	case v.AllocatableSlots() == offers && v.Order > 0:
		f.Reason = fmt.Sprintf("is number %d of the host list", v.Order)
	default:
		f.Reason = fmt.Sprintf("%d of its %s may be used", v.AllocatableSlots(), english.Plural(v.Slots, "slot"))
	}
	t.publish(events.NodeChanged{NodeFact: f})
}

func (t *transition) setHostEntry(b events.HostEntry) {
	v := &t.s.View
	v.Excluded, v.Cap, v.Order = b.Excluded, nil, b.Order
	if b.Slots != nil {
		slots := *b.Slots
		v.Cap = &slots
	}
}
