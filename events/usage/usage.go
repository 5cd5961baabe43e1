// Package usage describes what a node uses of its processors and memory, as its agent has measured.
package usage

import (
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// All matches the subjects of all nodes.
const All = "regroup.sig.usage.*"

// Subject returns the subject of what a node uses.
func Subject(node ident.NodeID) string { return strings.TrimSuffix(All, "*") + string(node) }

// Node is a signal about the machine of a node and the workers there.
type Node struct {
	Node        ident.NodeID      `json:"node"`
	Incarnation ident.Incarnation `json:"incarnation"`
	Machine     Of                `json:"machine"` // all its processes; memory: what is not available to new ones
	Processors  int               `json:"processors"`
	Memory      uint64            `json:"memory"` // of the machine, in bytes
	Workers     []Worker          `json:"workers,omitempty" bound:"slots"`
}

// Of is what processes use.
type Of struct {
	Processors float64 `json:"processors"` // on average since the measurement before, some seconds: 1.5 = one and a half
	Memory     uint64  `json:"memory"`     // in bytes
}

// Worker is what a worker uses together with the processes that it has started. Its memory is the
// sum of what ps calls RSS: pages that several of them share count for each.
type Worker struct {
	Job   ident.JobID `json:"job"`
	Place ident.Place `json:"place"`
	PID   int         `json:"pid"`
	Of
}

// Type returns the type.
func (Node) Type() events.Type { return "dev.regroup.sig.usage.v1" }
