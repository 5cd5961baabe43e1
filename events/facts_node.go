package events

import (
	"time"

	"github.com/regroup-io/regroup/events/spec"
)

// Facts of the node family; written by discovery. The entity is the node.

// NodeFact is what all node facts carry: the whole picture of the node, so that the newest alone
// says what it is.
type NodeFact struct {
	Node             NodeID            `json:"node"`
	Incarnation      Incarnation       `json:"incarnation"`          // of the agent
	Slots            int               `json:"slots" bound:"slots"`  // that may be used: what the agent has, at most what the host list says
	Address          string            `json:"address" bound:"word"` // data-plane host
	Reason           string            `json:"reason"`
	State            NodeState         `json:"state,omitempty"`
	Drains           bool              `json:"drains,omitempty"`
	Excluded         string            `json:"excluded,omitempty"`   // why it may not be used at all; empty = it may
	Order            int               `json:"order,omitempty"`      // which line of the host list names it, from 1: those before it are used first; 0 = none
	Quarantine       *Quarantine       `json:"quarantine,omitempty"` // of the whole node: no new work
	QuarantinedSlots []QuarantinedSlot `json:"benched,omitempty"`    // by slot
	// Disconnected: the broker saw the agent's connection end, and no newer one is known. With it a
	// suspicion is more than silence.
	Disconnected bool `json:"disconnected,omitempty"`
	// Departing: the agent has announced that the node will go away. What ends with it is no
	// failure.
	Departing bool `json:"departing,omitempty"`
	// Parted lists the newest lives of the agent before this one that have left, or had announced
	// their end, oldest first: what ended with them is no failure, even for somebody who hears of
	// this one before he hears of their end.
	LeftIncarnations []Incarnation `json:"parted,omitempty"`
}

// NodeJoined says that an agent has come, or came back as a new incarnation.
type NodeJoined struct{ NodeFact }

// NodeSuspected says that a node is silent, or that its agent's connection has ended; nothing
// follows from it alone.
type NodeSuspected struct{ NodeFact }

// NodeRecovered says that a suspected node was heard again.
type NodeRecovered struct{ NodeFact }

// NodeLost says that a node is gone; its workers count as lost.
type NodeLost struct{ NodeFact }

// NodeLeft says that an agent said goodbye: its workers have ended before.
type NodeLeft struct{ NodeFact }

// NodeDraining says that a node takes no more work and that its work should move away, as a planned
// change.
type NodeDraining struct{ NodeFact }

// NodeRejected says that a command about a node was refused. Node is empty when none could be read.
type NodeRejected struct {
	Node    NodeID            `json:"node,omitempty"`
	Command string            `json:"command"`          // CloudEvents id of the refused command, as far as it could be read
	Code    Code              `json:"code,omitempty"`   // not_found: there is no such node
	Errors  []spec.FieldError `json:"findings"`         // every reason, at least one
	Expired time.Time         `json:"expired,omitzero"` // the command's expirytime, if it came after that
}

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

// NodeQuarantined says that a node (Slot is nil) or one of its slots is kept out from now on. A
// quarantined node gets no new work, and what runs well there stays; a benched slot gives its work
// away as a planned change.
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

// NodeChanged says that what may be used of a node has changed: the host list names it or not, or
// with another number of slots.
type NodeChanged struct{ NodeFact }

// NodeQuarantine asks to keep a node, or one of its slots, out for a time. It replaces a quarantine
// that runs.
type NodeQuarantine struct {
	Node   NodeID        `json:"node"`
	Slot   *Slot         `json:"slot,omitempty"` // nil = the whole node
	For    spec.Duration `json:"for"`            // positive
	Reason string        `json:"reason,omitempty"`
}

// NodeRelease asks to end the quarantine of a node and all its slots, or of one slot, and to
// forgive what led to it.
type NodeRelease struct {
	Node   NodeID `json:"node"`
	Slot   *Slot  `json:"slot,omitempty"` // nil = the whole node
	Reason string `json:"reason,omitempty"`
}

// HostEntry is what the host list says of a node. It is discovery's own observation (made by a
// replica, not sent).
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
