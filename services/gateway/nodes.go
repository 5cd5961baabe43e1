package gateway

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// Node is a node with the work on it.
type Node struct {
	events.NodeView
	Usable int         `json:"usable"` // slots that may get new work now
	Used   int         `json:"used"`   // slots that a job has
	Jobs   []NodeShare `json:"jobs"`
	Usage  *NodeUsage  `json:"usage,omitempty"` // absent = nothing was heard of it
}

// NodeUsage is what the machine of a node uses, of what it has.
type NodeUsage struct {
	At             time.Time `json:"at"`              // when it was heard
	Processors     int       `json:"processors"`      // of the machine
	ProcessorsUsed float64   `json:"processors_used"` // on average over some seconds
	Memory         uint64    `json:"memory"`          // of the machine, in bytes
	MemoryUsed     uint64    `json:"memory_used"`     // that is not available to new processes, in bytes
}

// NodeShare is the part of a job that is on a node.
type NodeShare struct {
	Job   ident.JobID `json:"job"`
	Slots int         `json:"slots"`
}

// NodeList is a list of nodes.
type NodeList struct {
	Nodes []Node `json:"nodes"`
}

// Drain asks that a node gives up its work; undo: that it gets work again.
type Drain struct {
	Reason string `json:"reason,omitempty"`
	Undo   bool   `json:"undo,omitempty"`
}

// QuarantineRequest asks to quarantine a node, or one of its slots, for a time.
type QuarantineRequest struct {
	Slot   *ident.Slot   `json:"slot,omitempty"` // absent = the whole node
	For    spec.Duration `json:"for"`            // 10m
	Reason string        `json:"reason,omitempty"`
}

// ReleaseRequest asks to end the quarantine of a node and its slots, or of one slot.
type ReleaseRequest struct {
	Slot   *ident.Slot `json:"slot,omitempty"` // absent = the whole node
	Reason string      `json:"reason,omitempty"`
}

// Slots are the slots of all nodes.
type Slots struct {
	All    int `json:"all"`    // of nodes that are ready
	Usable int `json:"usable"` // of them, that may get new work
	Used   int `json:"used"`   // that jobs have
	Free   int `json:"free"`
}

func (g *Gateway) nodes() []Node {
	work := view.Used(g.feed.Pool())
	views := g.feed.Nodes()
	all := make([]Node, len(views))
	for i, v := range views {
		n := Node{NodeView: v, Usable: v.SchedulableSlots(), Jobs: []NodeShare{}}
		for id, slots := range work[v.Node] {
			n.Jobs = append(n.Jobs, NodeShare{id, slots})
			n.Used += slots
		}
		if u, ok := g.feed.Usage(v.Node); ok && u.Incarnation == v.Incarnation {
			n.Usage = &NodeUsage{u.At, u.Processors, u.Machine.Processors, u.Memory, u.Machine.Memory}
		}
		slices.SortFunc(n.Jobs, func(a, b NodeShare) int { return strings.Compare(string(a.Job), string(b.Job)) })
		all[i] = n
	}
	return all
}

func (g *Gateway) slots() Slots {
	var s Slots
	for _, n := range g.nodes() {
		if n.State != events.NodeStateReady {
			continue
		}
		s.All += n.Slots
		s.Usable += n.Usable
		s.Used += n.Used
		s.Free += max(0, n.Usable-n.Used)
	}
	return s
}

func (g *Gateway) listNodes(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, http.StatusOK, NodeList{g.nodes()})
}

func (g *Gateway) drainNode(w http.ResponseWriter, r *http.Request) error {
	var d Drain
	return g.changeNode(w, r, &d, func(id ident.NodeID) cluster.Change[events.NodeView] { return cluster.Drain(id, d.Reason, d.Undo) })
}

func (g *Gateway) quarantineNode(w http.ResponseWriter, r *http.Request) error {
	var q QuarantineRequest
	return g.changeNode(w, r, &q, func(id ident.NodeID) cluster.Change[events.NodeView] {
		return cluster.Quarantine(events.NodeQuarantine{Node: id, Slot: q.Slot, For: q.For, Reason: q.Reason})
	})
}

func (g *Gateway) releaseNode(w http.ResponseWriter, r *http.Request) error {
	var q ReleaseRequest
	return g.changeNode(w, r, &q, func(id ident.NodeID) cluster.Change[events.NodeView] {
		return cluster.Release(events.NodeRelease{Node: id, Slot: q.Slot, Reason: q.Reason})
	})
}

// changeNode changes the node of a path and answers with its new view.
func (g *Gateway) changeNode(w http.ResponseWriter, r *http.Request, into any, what func(ident.NodeID) cluster.Change[events.NodeView]) error {
	id := ident.NodeID(r.PathValue("node"))
	if _, ok := g.feed.Node(id); !ok {
		return errcode.Errorf(errcode.NotFound, "there is no node %q: see /api/v1/nodes", limits.Shorten(string(id), limits.Word.Max))
	}
	if err := body(r, into); err != nil {
		return err
	}
	now := func() events.NodeView {
		v, _ := g.feed.Node(id)
		return v
	}
	if err := change(r.Context(), g.commands, what(id), now); err != nil {
		return refusedAs(http.StatusUnprocessableEntity, err)
	}
	return answer(w, http.StatusOK, now())
}
