package liveness

import (
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/events"
)

// noteConnection takes in over which connection a node was heard, and tells whether that is no sign
// of life: the connection, or a later one, is known to have ended since.
func (t *transition) noteConnection(l events.Link) (stale bool) {
	if t.s.ClosedLink.Known() && !l.After(t.s.ClosedLink) {
		return true
	}
	if l.After(t.s.View.Link) {
		t.s.View.Link = l
	}
	return false
}

// disconnected takes in that the broker saw a connection end. It harms only a node that has
// reported no later one. A goodbye comes before the end, so nobody who leaves is suspected.
func (t *transition) disconnected(b events.Disconnected) {
	v := &t.s.View
	switch {
	case b.Incarnation != v.Incarnation || !b.Link.Same(v.Link) && !b.Link.After(v.Link):
		t.refuse(events.Fenced, "a connection of node %s has ended, which speaks over another one now", v.Node)
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

// announceDeparture takes in what a life of the agent has announced. It is never taken back: the
// next life begins without.
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

// recordPlannedEnd remembers the life that ends, if it went as planned: whoever hears of the next
// one first must not take it for a failure.
func (t *transition) recordPlannedEnd() {
	if v := &t.s.View; v.State == events.NodeStateLeft || v.Departing != nil {
		v.LeftIncarnations = append(slices.Clone(v.LeftIncarnations), v.Incarnation)
		v.LeftIncarnations = v.LeftIncarnations[max(0, len(v.LeftIncarnations)-leftKept):]
	}
}

// newIncarnation is for an agent that has not been heard before.
func (t *transition) newIncarnation(b events.NodeHello) {
	v := &t.s.View
	t.s.ClosedLink, v.Link = events.Link{}, b.Link
	v.Departing = b.Departing
	v.Draining = v.Departing != nil || t.s.Drain != ""
}

// drainReason says it to people.
func (s State) drainReason() string {
	if d := s.View.Departing; d != nil {
		return "departing: " + d.Reason
	}
	return s.Drain
}

// applyHostEntry takes in what the host list says of the node. What this takes away or gives is a
// planned change.
func (t *transition) applyHostEntry(b events.HostEntry) {
	v := &t.s.View
	if v.State == "" {
		return
	}
	offers, excluded, order := v.AllocatableSlots(), v.Excluded, v.Order
	t.setHostEntry(b)
	if !t.s.alive() || (v.AllocatableSlots() == offers && (v.Excluded == "") == (excluded == "") && v.Order == order) {
		return // nothing that anybody acts on; of a node that is gone its next hello tells
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
		f.Reason = fmt.Sprintf("%d of its %d slots may be used", v.AllocatableSlots(), v.Slots)
	}
	t.publish(events.NodeChanged{NodeFact: f})
}

// setHostEntry writes down what the host list says.
func (t *transition) setHostEntry(b events.HostEntry) {
	v := &t.s.View
	v.Excluded, v.Cap, v.Order = b.Excluded, nil, b.Order
	if b.Slots != nil {
		slots := *b.Slots
		v.Cap = &slots
	}
}
