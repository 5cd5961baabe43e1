package liveness

import (
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
)

// Recall applies a fact about a node, which describes it completely, to a node whose document was
// lost. What it does not say comes with the next hello of the agent, such as the ids of GPUs; only
// the failures that were counted are forgotten.
func (Machine) Recall(s State, e events.Event, _ time.Time) State {
	n, ok := e.Body.(events.NodeEvent)
	if !ok {
		return s
	}
	f, v := n.Fact(), &s.View
	if v.Incarnation != "" && v.Incarnation != f.Incarnation {
		s.Replaced = append(s.Replaced, v.Incarnation)
		s.Replaced = s.Replaced[max(0, len(s.Replaced)-replacedKept):]
	}
	if v.State != f.State {
		v.Since = e.Time
	}
	v.Node, v.Incarnation, v.Slots, v.Address, v.Reason, v.State = f.Node, f.Incarnation, f.Slots, f.Address, f.Reason, f.State
	v.Draining, v.Excluded, v.Order, v.Quarantine, v.QuarantinedSlots = f.Drains, f.Excluded, f.Order, f.Quarantine, f.QuarantinedSlots
	v.Disconnected, v.LeftIncarnations = f.Disconnected, slices.Clone(f.LeftIncarnations)
	s.PublishedGPUs, v.GPUs = f.GPUs, nil
	for _, g := range f.GPUs {
		v.GPUs = append(v.GPUs, slices.Repeat([]devices.GPU{{Model: g.Model, MemoryMiB: g.MemoryMiB}}, min(max(0, g.Count), f.Slots-len(v.GPUs)))...)
	}
	s.Drain, v.Departing = "", nil
	switch {
	case f.Departing:
		v.Departing = &events.Departure{Reason: f.Reason}
	case f.Drains:
		s.Drain = "draining"
	}
	return s
}
