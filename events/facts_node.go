package events

import (
	"time"

	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/leases"
	"github.com/regroup-io/regroup/events/spec"
)

// Facts of the node family; written by discovery. The entity is the node.

// NodeFact is embedded in all node facts. It describes the node completely: the newest suffices.
type NodeFact struct {
	Node        ident.NodeID      `json:"node"`
	Incarnation ident.Incarnation `json:"incarnation"` // of the agent
	// That may be used: those of the agent, limited by the host list.
	Slots    int       `json:"slots" bound:"slots"`
	Address  string    `json:"address" bound:"word"` // data-plane host
	Reason   string    `json:"reason"`
	State    NodeState `json:"state,omitempty"`
	Drains   bool      `json:"drains,omitempty"`
	Excluded string    `json:"excluded,omitempty"` // why it must not be used at all; empty = it may
	// Its line in the host list, from 1: earlier ones are used first; 0 = none.
	Order            int               `json:"order,omitempty"`
	Quarantine       *Quarantine       `json:"quarantine,omitempty"`        // of the whole node: no new work
	QuarantinedSlots []QuarantinedSlot `json:"quarantined_slots,omitempty"` // by slot
	// Disconnected: the broker saw the agent's connection close, and no newer one is known. With it
	// a suspicion is more than silence.
	Disconnected bool `json:"disconnected,omitempty"`
	// Departing: the node's departure was announced. What ends with it is no failure.
	Departing bool `json:"departing,omitempty"`
	// LeftIncarnations are the newest previous incarnations of the agent that have left, or had
	// announced their end, oldest first: what ended with them is no failure, even for a reader that
	// receives this fact before those of their end.
	LeftIncarnations []ident.Incarnation `json:"left_incarnations,omitempty"`
	// GPUs are those of the slots, in their order; empty = the slots have none of their own.
	GPUs []devices.Slots `json:"gpus,omitempty"`
	// LeaseEnds is until when processes may still run that the node had before it was lost: its
	// agent ends them at that time at the latest, whether or not it can be reached. Zero = none
	// may.
	LeaseEnds leases.Ends `json:"lease_ends,omitzero"`
}

// NodeEvent is a fact that embeds a NodeFact: the newest of them is all that there is to know.
type NodeEvent interface {
	Body
	Fact() NodeFact
}

// Fact implements NodeEvent.
func (f NodeFact) Fact() NodeFact { return f }

// NodeJoined records that an agent has joined, or returned as a new incarnation.
type NodeJoined struct{ NodeFact }

// NodeSuspected records that a node is silent or disconnected. Nothing follows from it alone.
type NodeSuspected struct{ NodeFact }

// NodeRecovered records that a suspected node was heard again.
type NodeRecovered struct{ NodeFact }

// NodeLost records that a node is gone. Its workers count as lost.
type NodeLost struct {
	NodeFact
	// SilentMS is how long the node had been silent when that was decided; 0 = unknown.
	SilentMS float64 `json:"silent_ms,omitempty"`
}

// NodeLeft records that an agent has said goodbye. Its workers have ended before.
type NodeLeft struct{ NodeFact }

// NodeDraining records that a node gets no more work, and that its work should move away.
type NodeDraining struct{ NodeFact }

// NodeRejected records that a command about a node was refused. Node is empty if unreadable.
type NodeRejected struct {
	Node    ident.NodeID      `json:"node,omitempty"`
	Command string            `json:"command"`          // CloudEvents id of the refused command, as far as it could be decoded
	Code    errcode.Code      `json:"code,omitempty"`   // not_found: there is no such node
	Errors  []spec.FieldError `json:"errors"`           // every reason, at least one
	Expired time.Time         `json:"expired,omitzero"` // the command's expirytime, if it arrived after that
}

// Quarantine is the quarantine of a node or a slot for a cool-down.
type Quarantine struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
	// Consecutive quarantines, one less for every hour without failures; 0 = only by hand.
	Count    int  `json:"count"`
	ByHand   bool `json:"by_hand,omitempty"`  // by a command
	Device   bool `json:"device,omitempty"`   // for a fault of the slot's GPU, see devices.Fault
	Measured bool `json:"measured,omitempty"` // for the figures of its GPU; it lasts while they are the reason
}

// QuarantinedSlot is a slot in quarantine: it keeps no worker and gets none.
type QuarantinedSlot struct {
	Slot ident.Slot `json:"slot"`
	Quarantine
}

// NodeQuarantined records that a node (Slot is nil) or one of its slots is quarantined. A
// quarantined node gets no new work and keeps its running work; a quarantined slot gives its work
// away by a planned change.
type NodeQuarantined struct {
	NodeFact
	Slot  *ident.Slot `json:"slot,omitempty"`
	Until time.Time   `json:"until"`
	Count int         `json:"count"`
}

// NodeReleased records that the quarantine of a node (Slot is nil) or of one of its slots is over.
type NodeReleased struct {
	NodeFact
	Slot *ident.Slot `json:"slot,omitempty"`
}

// NodeChanged records that the usable slots of a node have changed, because the host list names it
// or not, or with another number of slots.
type NodeChanged struct{ NodeFact }

// NodeQuarantine asks to quarantine a node or a slot for a time. It replaces a running quarantine.
type NodeQuarantine struct {
	Node   ident.NodeID  `json:"node"`
	Slot   *ident.Slot   `json:"slot,omitempty"` // nil = the whole node
	For    spec.Duration `json:"for"`            // positive
	Reason string        `json:"reason,omitempty"`
}

// NodeRelease asks to end the quarantine of a node and all its slots, or of one slot, and to clear
// the failures that led to it.
type NodeRelease struct {
	Node   ident.NodeID `json:"node"`
	Slot   *ident.Slot  `json:"slot,omitempty"` // nil = the whole node
	Reason string       `json:"reason,omitempty"`
}

// HostEntry is a node's entry in the host list, as a replica of discovery sees it (not sent).
type HostEntry struct {
	Node     ident.NodeID `json:"node"`
	Slots    *int         `json:"slots,omitempty"`    // limit on the slots used; nil = all
	Excluded string       `json:"excluded,omitempty"` // why the node must not be used; empty = it may
	Order    int          `json:"order,omitempty"`    // its line, from 1; 0 = none
}

// Type makes HostEntry a Body.
func (HostEntry) Type() Type { return "dev.regroup.sig.host-entry.v1" }

// AllocatableSlots returns how many of the node's slots may be used.
func (n NodeView) AllocatableSlots() int {
	if n.Cap != nil {
		return max(0, min(n.Slots, *n.Cap))
	}
	return max(0, n.Slots)
}

// SchedulableSlots returns how many slots may get new work now.
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

// Fact returns the description of the node that every fact about it embeds.
func (n NodeView) Fact() NodeFact {
	return NodeFact{
		Node: n.Node, Incarnation: n.Incarnation, Slots: n.AllocatableSlots(), Address: n.Address, Reason: n.Reason,
		State: n.State, Drains: n.Draining, Excluded: n.Excluded, Order: n.Order, Quarantine: n.Quarantine, QuarantinedSlots: n.QuarantinedSlots,
		Disconnected: n.Disconnected, Departing: n.Departing != nil, LeftIncarnations: n.LeftIncarnations,
		LeaseEnds: n.LeaseEnds, GPUs: n.SlotGPUs(),
	}
}

// SlotGPUs returns the GPUs of the slots that may be used. Slots have GPUs of their own if there
// are as many.
func (n NodeView) SlotGPUs() (all []devices.Slots) {
	if n.HasSlotGPUs() {
		all = devices.OfSlots(n.GPUs[:n.AllocatableSlots()])
	}
	return all
}
