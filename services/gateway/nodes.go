package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
)

// Node is a node with the work on it.
type Node struct {
	events.NodeView
	Usable int         `json:"usable"` // slots that may get new work now
	Used   int         `json:"used"`   // slots that a job has
	Jobs   []NodeShare `json:"jobs"`
}

// NodeShare is the part of a job that is on a node.
type NodeShare struct {
	Job   events.JobID `json:"job"`
	Slots int          `json:"slots"`
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
	Slot   *events.Slot  `json:"slot,omitempty"` // absent = the whole node
	For    spec.Duration `json:"for"`            // 10m
	Reason string        `json:"reason,omitempty"`
}

// ReleaseRequest asks to end the quarantine of a node and its slots, or of one slot.
type ReleaseRequest struct {
	Slot   *events.Slot `json:"slot,omitempty"` // absent = the whole node
	Reason string       `json:"reason,omitempty"`
}

// Slots are the slots of all nodes.
type Slots struct {
	All    int `json:"all"`    // of nodes that are ready
	Usable int `json:"usable"` // of them, that may get new work
	Used   int `json:"used"`   // that jobs have
	Free   int `json:"free"`
}

// work returns the places of jobs by node.
func (g *Gateway) work() map[events.NodeID]map[events.JobID]int {
	all := map[events.NodeID]map[events.JobID]int{}
	for id, p := range g.feed.Pool().Jobs {
		for _, place := range p.Places {
			if all[place.Node] == nil {
				all[place.Node] = map[events.JobID]int{}
			}
			all[place.Node][id]++
		}
	}
	return all
}

func (g *Gateway) nodes() []Node {
	work := g.work()
	views := g.feed.Nodes()
	all := make([]Node, len(views))
	for i, v := range views {
		n := Node{NodeView: v, Usable: v.SchedulableSlots(), Jobs: []NodeShare{}}
		for id, slots := range work[v.Node] {
			n.Jobs = append(n.Jobs, NodeShare{id, slots})
			n.Used += slots
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
	return g.changedNode(w, r, &d, func(v events.NodeView) (events.Body, func() bool) {
		return events.NodeDrain{Node: v.Node, Reason: d.Reason, Undo: d.Undo}, func() bool {
			now, _ := g.feed.Node(v.Node)
			return now.Draining != d.Undo
		}
	})
}

func (g *Gateway) quarantineNode(w http.ResponseWriter, r *http.Request) error {
	var q QuarantineRequest
	return g.changedNode(w, r, &q, func(v events.NodeView) (events.Body, func() bool) {
		return events.NodeQuarantine{Node: v.Node, Slot: q.Slot, For: q.For, Reason: q.Reason}, nil
	})
}

func (g *Gateway) releaseNode(w http.ResponseWriter, r *http.Request) error {
	var q ReleaseRequest
	return g.changedNode(w, r, &q, func(v events.NodeView) (events.Body, func() bool) {
		return events.NodeRelease{Node: v.Node, Slot: q.Slot, Reason: q.Reason}, func() bool {
			now, _ := g.feed.Node(v.Node)
			return !quarantined(now, q.Slot)
		}
	})
}

func quarantined(v events.NodeView, slot *events.Slot) bool {
	if slot == nil {
		return v.Quarantine != nil || len(v.QuarantinedSlots) > 0
	}
	return slices.ContainsFunc(v.QuarantinedSlots, func(b events.QuarantinedSlot) bool { return b.Slot == *slot })
}

// changedNode runs a command about the node of a path and answers with its new view.
func (g *Gateway) changedNode(w http.ResponseWriter, r *http.Request, into any, command func(events.NodeView) (events.Body, func() bool)) error {
	id := events.NodeID(r.PathValue("node"))
	v, ok := g.feed.Node(id)
	if !ok {
		return events.Errorf(events.NotFound, "there is no node %q: see /api/v1/nodes", limits.Shorten(string(id), limits.Word.Max))
	}
	if err := body(r, into); err != nil {
		return err
	}
	b, satisfied := command(v)
	if _, err := g.commands.ask(r.Context(), "", string(id), b, func(events.Body) bool { return true }, satisfied); err != nil {
		return invalid(err)
	}
	v, _ = g.feed.Node(id)
	return answer(w, http.StatusOK, v)
}
