package events

import (
	"time"

	"github.com/regroup-io/regroup/events/spec"
)

// Facts of the node family; written by discovery. The entity is the node.

// NodeFact is what all node facts carry: the whole picture of the node, so that the newest alone says what it is.
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
	// Disconnected: the broker saw the agent's connection end, and no newer one is known. With it a suspicion is more than silence.
	Disconnected bool `json:"disconnected,omitempty"`
	// Departing: the agent has announced that the node will go away. What ends with it is no failure.
	Departing bool `json:"departing,omitempty"`
	// Parted lists the newest lives of the agent before this one that have left, or had announced their end, oldest first: what
	// ended with them is no failure, even for somebody who hears of this one before he hears of their end.
	LeftIncarnations []Incarnation `json:"parted,omitempty"`
}

// NodeJoined says that an agent has come, or came back as a new incarnation.
type NodeJoined struct{ NodeFact }

// NodeSuspected says that a node is silent, or that its agent's connection has ended; nothing follows from it alone.
type NodeSuspected struct{ NodeFact }

// NodeRecovered says that a suspected node was heard again.
type NodeRecovered struct{ NodeFact }

// NodeLost says that a node is gone; its workers count as lost.
type NodeLost struct{ NodeFact }

// NodeLeft says that an agent said goodbye: its workers have ended before.
type NodeLeft struct{ NodeFact }

// NodeDraining says that a node takes no more work and that its work should move away, as a planned change.
type NodeDraining struct{ NodeFact }

// NodeRejected says that a command about a node was refused. Node is empty when none could be read.
type NodeRejected struct {
	Node    NodeID            `json:"node,omitempty"`
	Command string            `json:"command"`          // CloudEvents id of the refused command, as far as it could be read
	Code    Code              `json:"code,omitempty"`   // not_found: there is no such node
	Errors  []spec.FieldError `json:"findings"`         // every reason, at least one
	Expired time.Time         `json:"expired,omitzero"` // the command's expirytime, if it came after that
}
