// Package plan decides which slots a job gets. There is one entity, the pool of all nodes and jobs;
// each Step assigns its slots to jobs.
//
//	          room for min                    a node goes, or scaled down
//	waiting ───────────────► placed ◄────────────────────────► below min
//	   ▲ ▲                      │     slots appear (first served)    │
//	   │ └──────────────────────┼────────────────────────────────────┤ rule 2
//	submitted                   └──────────► released ◄──────────────┘
//	                                 the job ended
//
// The rules, in the order in which slots are assigned:
//
//  1. A place is kept as long as its node and slot are usable; nothing is ever moved. The places
//     on nodes that are lost, have left, drain, are not on the host list or have fewer slots, and
//     on slots in quarantine or with another GPU than is asked for, are revoked, and a job over its
//     max gives its highest places back.
//  2. Placed jobs that are below their min take free slots, oldest job first. One that is still
//     below it keeps its slots if its workers live (recovery in process), or if what it lost may be
//     back soon: a lost node, a slot in quarantine. Otherwise, after a drain for example, it has no
//     processes: it gives all slots back and waits for its gang again.
//  3. Waiting jobs get their min, all of it or nothing (a gang), oldest first. Slots are alike for
//     jobs that ask for nothing. The first job that does not fit keeps all free slots that would do
//     for it from later ones, and so no job starves: one that asks for nothing keeps all, one that
//     asks for a GPU those that have one. Only a job that needs more slots than all nodes together
//     have for it (without those that drain or are in quarantine) keeps none.
//  4. The remaining slots go to placed jobs up to their max, oldest first, but for those that are
//     kept (rule 3). A job that trains with multiples of a number gets only what makes its places a
//     multiple, and leaves the rest to others. Its min and max are multiples, so rules 2 and 3 end
//     at one too, and rule 1 holds for it as for all: after a loss it may have places beyond a
//     multiple, whose workers are spare ones until it grows again.
//
// A job that asks for a GPU gets and keeps only slots with a GPU of their own that will do, in
// every rule. Example: it needs two H100, of which one is free, and a later job asks for a T4 or
// nothing: that gets any slot but the ones with an H100.
//
// Slots are assigned in order of node name and slot number. No job is preempted.
//
// Inputs may be repeated, late or reordered. Node facts are ordered by their number, and each
// describes the node completely. Jobs are known by three facts that may arrive in any order; ended
// ones are remembered for a while, so that job.submitted after job.stopped does not leak a slot.
package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tracing"
)

// transition is one Step in progress.
type transition struct {
	s    *State
	in   events.Input
	now  time.Time
	d    events.Decision
	lost lostNodes // whose places were lost
}

// Step applies one fact and assigns the slots again.
func (m Machine) Step(s State, in events.Input, now time.Time) (State, events.Decision) {
	s, applied := m.Apply(s, in, now)
	s, d := m.Conclude(s, in, now)
	d.Facts, d.Spans = append(applied.Facts, d.Facts...), append(applied.Spans, d.Spans...)
	return s, d
}

// Conclude assigns the slots again if an applied input may change the assignment.
func (Machine) Conclude(s State, last events.Input, now time.Time) (State, events.Decision) {
	t := transition{s: &s, in: last, now: now, lost: s.lost}
	if s.dirty {
		t.plan()
	}
	s.dirty, s.lost, s.touched = false, nil, nil
	return s, t.d
}

// Apply applies one fact.
func (Machine) Apply(s State, in events.Input, now time.Time) (State, events.Decision) {
	if s.View.Jobs == nil {
		s.View.Jobs = map[ident.JobID]events.PlacementView{}
	}
	if s.Nodes == nil {
		s.Nodes = map[ident.NodeID]Node{}
	}
	t := transition{s: &s, in: in, now: now, lost: s.lost}
	switch b := in.Body.(type) {
	case events.JobSubmitted:
		t.submitted(b)
	case events.JobScaled:
		t.scaled(b)
	case events.JobEndFact:
		t.ended(b.End().Job)
	case events.JobRemoved:
		t.removed(b.Job)
	case events.IncidentOpened:
		t.incident(b)
		return s, t.d
	case events.IncidentClosed:
		t.closed(b)
		return s, t.d
	case events.NodeEvent:
		t.applyNodeFact(b)
	default:
		return s, t.d
	}
	s.dirty, s.lost = true, t.lost
	return s, t.d
}

func (t *transition) submitted(b events.JobSubmitted) {
	if slices.Contains(t.s.Ended, b.Job) || b.Spec.SelfRegistered() { // the rendezvous places jobs with self-registered nodes
		return
	}
	j := t.s.job(b.Job)
	if j == nil {
		if j = t.add(b.Job); j == nil {
			return
		}
		t.setWanted(b.Job, b.Spec.Workers)
	}
	j.describe(b.Spec)
}

// describe keeps what the scheduler reads of a specification that a JobSubmitted has. The wanted
// workers are in the view, and may be newer.
func (j *Job) describe(s spec.Job) {
	j.Submitted, j.Restart, j.MultipleOf, j.GPU = true, s.Recovery == spec.RecoveryRestart, s.Elastic.MultipleOf, s.GPU
}

func (t *transition) scaled(b events.JobScaled) {
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
	t.setWanted(b.Job, b.Workers)
}

// add adds a job to the pool, unless the pool is full.
func (t *transition) add(id ident.JobID) *Job {
	if len(t.s.Queue) >= maxJobs {
		return nil
	}
	t.s.Queue = append(t.s.Queue, Job{ID: id})
	if t.s.index != nil {
		t.s.index[id] = len(t.s.Queue) - 1
	}
	return &t.s.Queue[len(t.s.Queue)-1]
}

// touch marks a job whose wait reason must be updated.
func (t *transition) touch(id ident.JobID) {
	if t.s.touched == nil {
		t.s.touched = map[ident.JobID]bool{}
	}
	t.s.touched[id] = true
}

func (t *transition) setWanted(id ident.JobID, w spec.Workers) {
	row := t.s.View.Jobs[id]
	row.Workers = spec.Workers{Min: max(1, w.Min), Max: max(1, w.Min, w.Max)}
	t.s.View.Jobs[id] = row
	t.touch(id)
}

func (t *transition) ended(id ident.JobID) {
	if slices.Contains(t.s.Ended, id) {
		return
	}
	t.s.Ended = append(t.s.Ended, id)
	t.s.Ended = t.s.Ended[max(0, len(t.s.Ended)-endedJobsKept):]
	if j := t.s.job(id); j != nil && (j.Placed || j.PublishedWorkers != spec.Workers{}) {
		t.d.Facts = append(t.d.Facts, events.Fact{Entity: string(id), Body: events.PlacementReleased{Job: id}})
	}
	t.s.Queue = slices.DeleteFunc(t.s.Queue, func(j Job) bool { return j.ID == id })
	t.s.index = nil
	delete(t.s.View.Jobs, id)
}

// removed drops an ended job: its id may be used again after a long time.
func (t *transition) removed(id ident.JobID) {
	t.ended(id)
	t.s.Ended = slices.DeleteFunc(t.s.Ended, func(x ident.JobID) bool { return x == id })
}

// applyNodeFact applies a node fact unless a later one was applied. The newest fact alone describes
// the node: joined and recovered mean ready for work, suspected and draining mean not.
func (t *transition) applyNodeFact(b events.NodeEvent) {
	f := b.Fact()
	if t.s.hasNodeFact(f.Node, t.in.Number) {
		return
	}
	n, known := t.s.Nodes[f.Node]
	// The loss of the old incarnation may still be on its way; its workers are gone in any case.
	if known && n.Gone == "" && n.Incarnation != f.Incarnation {
		t.lose(f.Node, n.Incarnation)
	}
	was := n
	n = Node{
		Incarnation: f.Incarnation, Slots: max(0, f.Slots), Number: max(n.Number, t.in.Number),
		Excluded: f.Excluded, Order: f.Order, Quarantine: f.Quarantine, QuarantinedSlots: f.QuarantinedSlots,
		GPUs: f.GPUs, LeaseEnds: f.LeaseEnds,
	}
	switch b.(type) {
	case events.NodeJoined, events.NodeRecovered:
	case events.NodeSuspected:
		n.Suspected = true
	case events.NodeDraining:
		n.Draining = true
	case events.NodeLost:
		n.Gone = Lost
	case events.NodeLeft:
		n.Gone = Left
	default: // the type does not imply the node's state: the fact carries it
		n.Suspected, n.Draining = f.State == events.NodeStateSuspected, f.Drains
		if f.State == events.NodeStateLost || f.State == events.NodeStateLeft {
			n.Gone = Departure(f.State)
		}
	}
	if n.Gone == Lost && was.Gone == "" {
		t.lose(f.Node, n.Incarnation)
	}
	t.s.Nodes[f.Node] = n
	if n.Gone != "" {
		t.forgetNodes()
	}
}

// lostNodes are the newest agents that were lost, by node. A node that is back has a newer one.
type lostNodes map[ident.NodeID]ident.Incarnation

func (t *transition) lose(n ident.NodeID, agent ident.Incarnation) {
	if t.lost == nil {
		t.lost = lostNodes{}
	}
	t.lost[n] = max(t.lost[n], agent)
}

// forgetNodes drops the oldest gone nodes when there are too many.
func (t *transition) forgetNodes() {
	if len(t.s.Nodes) <= lostNodesKept {
		return
	}
	lost := slices.DeleteFunc(slices.Sorted(maps.Keys(t.s.Nodes)), func(id ident.NodeID) bool { return t.s.Nodes[id].Gone == "" })
	for _, id := range lost[:max(0, len(lost)-lostNodesKept)] {
		delete(t.s.Nodes, id)
	}
}

// incident applies that a job has an incident. An older one, by its number, changes nothing.
func (t *transition) incident(b events.IncidentOpened) {
	j := t.s.job(b.Job)
	if j == nil || b.Incident <= j.Incident.Count {
		return
	}
	lost := j.Incident.Lost
	j.Incident = Incident{Count: b.Incident, Trace: b.Trace}
	// The fact of a lost node reaches the scheduler and the registry at the same time, so the
	// decision was usually made before the incident is published.
	if lost != nil && slices.Contains(lost.Nodes, b.Cause.Node) {
		t.span(j.ID, b.Trace, lost.Reason, lost.At)
	}
}

func (t *transition) closed(b events.IncidentClosed) {
	if j := t.s.job(b.Job); j != nil && b.Incident >= j.Incident.Count {
		j.Incident = Incident{Count: b.Incident}
	}
}

// traceOf returns the trace of the current decision about a job's places: that of its open
// incident, of its start, or only the input's.
func (t *transition) traceOf(j *Job, first bool) string {
	switch {
	case j.Incident.Trace != "":
		return j.Incident.Trace
	case first:
		return tracing.JobTrace(j.ID)
	}
	return ""
}

func (t *transition) span(id ident.JobID, parent, reason string, at time.Time) {
	t.d.Spans = append(t.d.Spans, events.Span{
		Service: events.ServiceScheduler, Name: "place", Parent: parent, Start: at, End: at,
		Attributes: map[string]string{"regroup.job.id": string(id), "reason": reason},
	})
}
