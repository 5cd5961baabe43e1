package liveness

import (
	"fmt"

	"github.com/regroup-io/regroup/events"
)

// listed takes in what the host list says of the node. What this takes away or gives is a planned change.
func (t *turn) listed(b events.HostEntry) {
	v := &t.s.View
	if v.State == "" {
		return
	}
	offers, excluded, order := v.AllocatableSlots(), v.Excluded, v.Order
	t.allow(b)
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
	t.tell(events.NodeChanged{NodeFact: f})
}

// allow writes down what the host list says.
func (t *turn) allow(b events.HostEntry) {
	v := &t.s.View
	v.Excluded, v.Cap, v.Order = b.Excluded, nil, b.Order
	if b.Slots != nil {
		slots := *b.Slots
		v.Cap = &slots
	}
}
