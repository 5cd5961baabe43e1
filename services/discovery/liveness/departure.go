package liveness

import (
	"slices"

	"github.com/regroup-io/regroup/events"
)

// overheard takes in over which connection a node was heard, and tells whether that is no sign of life: the connection, or a
// later one, is known to have ended since.
func (t *turn) overheard(l events.Link) (stale bool) {
	if t.s.Ended.Known() && !l.After(t.s.Ended) {
		return true
	}
	if l.After(t.s.View.Link) {
		t.s.View.Link = l
	}
	return false
}

// cut takes in that the broker saw a connection end. It harms only a node that has reported no later one. A goodbye comes before
// the end, so nobody who leaves is suspected.
func (t *turn) cut(b events.Disconnected) {
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
	t.s.Ended = v.Link
	if !t.s.alive() {
		return
	}
	t.become(events.NodeStateSuspected, "its connection has ended")
	v.Disconnected = true
	t.tell(events.NodeSuspected{NodeFact: t.fact()})
	t.draining()
}

// departing takes in what a life of the agent has announced. It is never taken back: the next life begins without.
func (t *turn) departing(d *events.Departure) {
	v := &t.s.View
	if d == nil || v.Departing != nil {
		return
	}
	v.Departing, v.Draining = d, true
	if t.s.alive() {
		v.Reason = t.s.whyDraining()
		t.draining()
	}
}

// parted remembers the life that ends, if it went as planned: whoever hears of the next one first must not take it for a failure.
func (t *turn) parted() {
	if v := &t.s.View; v.State == events.NodeStateLeft || v.Departing != nil {
		v.LeftIncarnations = append(slices.Clone(v.LeftIncarnations), v.Incarnation)
		v.LeftIncarnations = v.LeftIncarnations[max(0, len(v.LeftIncarnations)-keepParted):]
	}
}

// newLife is for an agent that has not been heard before.
func (t *turn) newLife(b events.NodeHello) {
	v := &t.s.View
	t.s.Ended, v.Link = events.Link{}, b.Link
	v.Departing = b.Departing
	v.Draining = v.Departing != nil || t.s.Drain != ""
}

// whyDraining says it to people.
func (s State) whyDraining() string {
	if d := s.View.Departing; d != nil {
		return "departing: " + d.Reason
	}
	return s.Drain
}
