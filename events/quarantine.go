package events

import (
	"time"

	"github.com/regroup-io/regroup/events/spec"
)

// Quarantine says that a node or a slot is kept out for a cool-down.
type Quarantine struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
	Count  int       `json:"count"`             // how many in a row, one less for every clean hour; 0 = only by hand
	ByHand bool      `json:"by_hand,omitempty"` // somebody asked for it
}

// QuarantinedSlot is a slot in quarantine: it keeps no worker and gets none.
type QuarantinedSlot struct {
	Slot Slot `json:"slot"`
	Quarantine
}

// NodeQuarantined says that a node (Slot is nil) or one of its slots is kept out from now on. A quarantined node gets no
// new work, and what runs well there stays; a benched slot gives its work away as a planned change.
type NodeQuarantined struct {
	NodeFact
	Slot  *Slot     `json:"slot,omitempty"`
	Until time.Time `json:"until"`
	Count int       `json:"count"`
}

// NodeReleased says that the quarantine of a node (Slot is nil) or of one of its slots is over.
type NodeReleased struct {
	NodeFact
	Slot *Slot `json:"slot,omitempty"`
}

// NodeChanged says that what may be used of a node has changed: the host list names it or not, or with another number of slots.
type NodeChanged struct{ NodeFact }

// NodeQuarantine asks to keep a node, or one of its slots, out for a time. It replaces a quarantine that runs.
type NodeQuarantine struct {
	Node   NodeID        `json:"node"`
	Slot   *Slot         `json:"slot,omitempty"` // nil = the whole node
	For    spec.Duration `json:"for"`            // positive
	Reason string        `json:"reason,omitempty"`
}

// NodeRelease asks to end the quarantine of a node and all its slots, or of one slot, and to forgive what led to it.
type NodeRelease struct {
	Node   NodeID `json:"node"`
	Slot   *Slot  `json:"slot,omitempty"` // nil = the whole node
	Reason string `json:"reason,omitempty"`
}

// HostEntry is what the host list says of a node. It is discovery's own observation (made by a replica, not sent).
type HostEntry struct {
	Node     NodeID `json:"node"`
	Slots    *int   `json:"slots,omitempty"`    // may be used at most; nil = all that it has
	Excluded string `json:"excluded,omitempty"` // why it may not be used; empty = it may
	Order    int    `json:"order,omitempty"`    // which line names it, from 1; 0 = none
}

// Type makes Listed a Body.
func (HostEntry) Type() Type { return "dev.regroup.sig.listed.v1" }

// AllocatableSlots is how many slots may be used of those that the node has.
func (n NodeView) AllocatableSlots() int {
	if n.Cap != nil {
		return max(0, min(n.Slots, *n.Cap))
	}
	return max(0, n.Slots)
}

// SchedulableSlots is how many slots may get new work now.
func (n NodeView) SchedulableSlots() int {
	if !n.Schedulable() {
		return 0
	}
	open := n.AllocatableSlots()
	for _, b := range n.QuarantinedSlots {
		if int(b.Slot) < n.AllocatableSlots() {
			open--
		}
	}
	return open
}

// Fact is the whole picture of the node, as every fact about it carries it.
func (n NodeView) Fact() NodeFact {
	return NodeFact{
		Node: n.Node, Incarnation: n.Incarnation, Slots: n.AllocatableSlots(), Address: n.Address, Reason: n.Reason,
		State: n.State, Drains: n.Draining, Excluded: n.Excluded, Order: n.Order, Quarantine: n.Quarantine, QuarantinedSlots: n.QuarantinedSlots,
		Disconnected: n.Disconnected, Departing: n.Departing != nil, LeftIncarnations: n.LeftIncarnations,
	}
}
