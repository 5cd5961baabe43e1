package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// turn is one Step in progress.
type turn struct {
	s    *State
	in   events.Input
	now  time.Time
	d    events.Decision
	lost []events.NodeID // whose places are gone without warning
}

// Step takes one fact into account and gives the slots out anew.
func (m Machine) Step(s State, in events.Input, now time.Time) (State, events.Decision) {
	s, said := m.Apply(s, in, now)
	s, d := m.Conclude(s, in, now)
	d.Facts, d.Spans = append(said.Facts, d.Facts...), append(said.Spans, d.Spans...)
	return s, d
}

// Conclude gives the slots out anew, if something was taken in that may change who has which.
func (Machine) Conclude(s State, last events.Input, now time.Time) (State, events.Decision) {
	t := turn{s: &s, in: last, now: now, lost: s.lost}
	if s.due {
		t.plan()
	}
	s.due, s.lost, s.touched = false, nil, nil
	return s, t.d
}

// Apply takes one fact into account.
func (Machine) Apply(s State, in events.Input, now time.Time) (State, events.Decision) {
	if s.View.Jobs == nil {
		s.View.Jobs = map[events.JobID]events.PlacementView{}
	}
	if s.Nodes == nil {
		s.Nodes = map[events.NodeID]Node{}
	}
	t := turn{s: &s, in: in, now: now, lost: s.lost}
	switch b := in.Body.(type) {
	case events.JobSubmitted:
		t.submitted(b)
	case events.JobScaled:
		t.scaled(b)
	case events.JobSucceeded:
		t.ended(b.Job)
	case events.JobFailed:
		t.ended(b.Job)
	case events.JobStopped:
		t.ended(b.Job)
	case events.JobRemoved:
		t.removed(b.Job)
	case events.IncidentOpened:
		t.incident(b)
		return s, t.d
	case events.IncidentClosed:
		t.closed(b)
		return s, t.d
	case events.NodeJoined:
		t.node(b.NodeFact, func(*Node) {})
	case events.NodeRecovered:
		t.node(b.NodeFact, func(*Node) {})
	case events.NodeSuspected:
		t.node(b.NodeFact, func(n *Node) { n.Suspected = true })
	case events.NodeDraining:
		t.node(b.NodeFact, func(n *Node) { n.Draining = true })
	case events.NodeQuarantined:
		t.node(b.NodeFact, standing(b.NodeFact))
	case events.NodeReleased:
		t.node(b.NodeFact, standing(b.NodeFact))
	case events.NodeChanged:
		t.node(b.NodeFact, standing(b.NodeFact))
	case events.NodeLost:
		t.node(b.NodeFact, func(n *Node) { n.Gone = Lost })
	case events.NodeLeft:
		t.node(b.NodeFact, func(n *Node) { n.Gone = Left })
	default:
		return s, t.d
	}
	s.due, s.lost = true, t.lost
	return s, t.d
}

func (t *turn) submitted(b events.JobSubmitted) {
	if slices.Contains(t.s.Ended, b.Job) || b.Spec.External() { // nodes come to such a job by themselves
		return
	}
	j := t.s.job(b.Job)
	if j == nil {
		if j = t.add(b.Job); j == nil {
			return
		}
		t.wants(b.Job, b.Spec.Workers)
	}
	j.Submitted = true
}

func (t *turn) scaled(b events.JobScaled) {
	if slices.Contains(t.s.Ended, b.Job) || b.Workers.Min < 1 || b.Workers.Max < b.Workers.Min {
		return
	}
	j := t.s.job(b.Job)
	if j == nil { // job.submitted is still on its way
		if j = t.add(b.Job); j == nil {
			return
		}
	}
	if t.in.Number != 0 && t.in.Number <= j.Workers {
		return
	}
	j.Workers = t.in.Number
	t.wants(b.Job, b.Workers)
}

// add takes a job into the pool, unless that is full.
func (t *turn) add(id events.JobID) *Job {
	if len(t.s.Queue) >= mostJobs {
		return nil
	}
	t.s.Queue = append(t.s.Queue, Job{ID: id})
	if t.s.index != nil {
		t.s.index[id] = len(t.s.Queue) - 1
	}
	return &t.s.Queue[len(t.s.Queue)-1]
}

// touch lets a job say anew why it waits.
func (t *turn) touch(id events.JobID) {
	if t.s.touched == nil {
		t.s.touched = map[events.JobID]bool{}
	}
	t.s.touched[id] = true
}

func (t *turn) wants(id events.JobID, w spec.Workers) {
	row := t.s.View.Jobs[id]
	row.Workers = spec.Workers{Min: max(1, w.Min), Max: max(1, w.Min, w.Max)}
	t.s.View.Jobs[id] = row
	t.touch(id)
}

func (t *turn) ended(id events.JobID) {
	if slices.Contains(t.s.Ended, id) {
		return
	}
	t.s.Ended = append(t.s.Ended, id)
	t.s.Ended = t.s.Ended[max(0, len(t.s.Ended)-keepEnded):]
	if j := t.s.job(id); j != nil && j.Placed {
		t.d.Facts = append(t.d.Facts, events.Fact{Entity: string(id), Body: events.PlacementReleased{Job: id}})
	}
	t.s.Queue = slices.DeleteFunc(t.s.Queue, func(j Job) bool { return j.ID == id })
	t.s.index = nil
	delete(t.s.View.Jobs, id)
}

// removed forgets an ended job: after a long time its id may be given again.
func (t *turn) removed(id events.JobID) {
	t.ended(id)
	t.s.Ended = slices.DeleteFunc(t.s.Ended, func(x events.JobID) bool { return x == id })
}

// standing is for facts whose type does not say whether the node lives: they carry it.
func standing(f events.NodeFact) func(*Node) {
	return func(n *Node) {
		n.Suspected, n.Draining = f.State == events.NodeStateSuspected, f.Drains
		switch f.State {
		case events.NodeStateLost:
			n.Gone = Lost
		case events.NodeStateLeft:
			n.Gone = Left
		}
	}
}

// node takes in a node fact unless a later one was seen. The newest alone says what the node is: joined and recovered
// mean ready for work, suspected and draining that only.
func (t *turn) node(f events.NodeFact, change func(*Node)) {
	if t.s.has(f.Node, t.in.Number) {
		return
	}
	n, known := t.s.Nodes[f.Node]
	// The loss of the old incarnation may still be on its way: its workers are gone all the same.
	if known && n.Gone == "" && n.Incarnation != f.Incarnation {
		t.lost = append(t.lost, f.Node)
	}
	was := n
	n = Node{
		Incarnation: f.Incarnation, Slots: max(0, f.Slots), Number: max(n.Number, t.in.Number),
		Excluded: f.Excluded, Order: f.Order, Quarantine: f.Quarantine, Benched: f.QuarantinedSlots,
	}
	change(&n)
	if n.Gone == Lost && was.Gone == "" && !slices.Contains(t.lost, f.Node) {
		t.lost = append(t.lost, f.Node)
	}
	t.s.Nodes[f.Node] = n
	if n.Gone != "" {
		t.forgetNodes()
	}
}

// forgetNodes drops nodes that went away when there are very many of them.
func (t *turn) forgetNodes() {
	if len(t.s.Nodes) <= keepGone {
		return
	}
	gone := slices.DeleteFunc(slices.Sorted(maps.Keys(t.s.Nodes)), func(id events.NodeID) bool { return t.s.Nodes[id].Gone == "" })
	if len(gone) > keepGone {
		for _, id := range gone[:len(gone)-keepGone] {
			delete(t.s.Nodes, id)
		}
	}
}
