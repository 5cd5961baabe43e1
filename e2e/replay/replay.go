// Package replay derives the state of nodes and jobs from the log of facts alone, and checks the
// invariants that the log shows. The simulation checks each fact when it is stored, e2e/network the
// log of a real cluster.
package replay

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
)

// Replay is the state after some facts.
type Replay struct {
	Nodes map[ident.NodeID]*Node
	Jobs  map[ident.JobID]*Job
	Facts int

	last    map[string]uint64 // number, by numbered log
	decided time.Time         // by the scheduler: the newest placement
	fail    Fail
}

// Fail reports a violation. Invariants have the numbers of e2e/sim/invariants.go.
type Fail func(invariant int, format string, args ...any)

// Node is a node.
type Node struct {
	State events.NodeState
	events.NodeFact
}

// Job is a job.
type Job struct {
	Spec      spec.Job
	State     events.JobState
	Reason    string
	Places    []ident.Place
	Round     events.RoundState
	Sealed    []events.RoundSealed
	Incidents []events.IncidentClosed
	Open      int                     // incident; 0 = none is open
	Wanted    map[uint64]spec.Workers // by number of the placement

	exits    []events.WorkerExited
	replaced map[ident.Incarnation]int // the attempt that takes a dead worker's place
}

// New returns the state before the first fact.
func New(fail Fail) *Replay {
	return &Replay{Nodes: map[ident.NodeID]*Node{}, Jobs: map[ident.JobID]*Job{}, last: map[string]uint64{}, fail: fail}
}

// Fold replays facts in the order of the log. The error has all violations.
func Fold(facts []events.Event) (*Replay, error) {
	var wrong []error
	r := New(func(invariant int, format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("invariant %d: %s", invariant, fmt.Sprintf(format, args...)))
	})
	for _, e := range facts {
		r.Apply(e)
	}
	r.checkSlots()
	return r, errors.Join(wrong...)
}

// Log names the log whose facts are numbered together with a fact: that of its entity or, for
// placements, that of the pool.
func Log(e events.Event) string {
	if f := e.Body.Type().Family(); f != events.FamilyPlacement {
		return string(f) + "/" + e.Entity
	}
	return "placement/*"
}

// Apply applies a fact, unless a reader drops it: one whose number it has seen.
func (r *Replay) Apply(e events.Event) bool {
	if e.Number > 0 { // otherwise it is of an agent
		log := Log(e)
		last := r.last[log]
		if e.Number <= last {
			return false
		}
		if e.Number != last+1 {
			r.fail(9, "%s: after fact %d comes %d (%s)", log, last, e.Number, e.Body.Type().Kind())
		}
		r.last[log] = e.Number
	}
	r.Facts++
	switch b := e.Body.(type) {
	case events.NodeJoined:
		r.node(events.NodeStateReady, b.NodeFact)
	case events.NodeRecovered:
		r.node(events.NodeStateReady, b.NodeFact)
	case events.NodeSuspected:
		r.node(events.NodeStateSuspected, b.NodeFact)
	case events.NodeLost:
		r.node(events.NodeStateLost, b.NodeFact)
	case events.NodeLeft:
		r.node(events.NodeStateLeft, b.NodeFact)
	case events.PlacementSet:
		r.placed(e, b)
	case events.PlacementReleased:
		r.Job(b.Job).Places = nil
	case events.RoundOpened:
		j := r.Job(b.Job)
		if j.Round = events.RoundStateOpen; int(b.Proposed) <= len(j.Sealed) {
			r.fail(4, "%s: %s was opened after it was sealed", b.Job, b.Proposed)
		}
	case events.RoundSealed:
		r.sealed(b)
	case events.RoundClosed:
		r.Job(b.Job).Round = events.RoundStateClosed
	case events.JobSubmitted:
		j := r.Job(b.Job)
		j.Spec, j.State = b.Spec, events.JobStateWaiting
	case events.WorkerExited:
		j := r.Job(b.Job)
		j.exits = append(j.exits, b)
	case events.JobRespawned:
		j := r.Job(b.Job)
		if n := j.replaced[b.Dead]; n != 0 {
			r.fail(10, "%s at %s was replaced twice, by attempts %d and %d", b.Dead, b.Place, n, b.Attempt)
		}
		j.replaced[b.Dead] = b.Attempt
	case events.JobSucceeded:
		r.ended(b.JobEnd, events.JobStateSucceeded)
	case events.JobFailed:
		r.ended(b.JobEnd, events.JobStateFailed)
	case events.JobStopped:
		r.ended(b.JobEnd, events.JobStateStopped)
	case events.IncidentOpened:
		j := r.Job(b.Job)
		if j.Open != 0 || b.Incident != len(j.Incidents)+1 {
			r.fail(11, "%s: incident %d opened after %d, open is %d", b.Job, b.Incident, len(j.Incidents), j.Open)
		}
		j.Open = b.Incident
	case events.IncidentClosed:
		r.closed(b)
	}
	return true
}

// Job returns what is known of a job.
func (r *Replay) Job(id ident.JobID) *Job {
	j := r.Jobs[id]
	if j == nil {
		j = &Job{Wanted: map[uint64]spec.Workers{}, replaced: map[ident.Incarnation]int{}}
		r.Jobs[id] = j
	}
	return j
}

func (r *Replay) node(s events.NodeState, f events.NodeFact) { r.Nodes[f.Node] = &Node{s, f} }

// placed records the places of a job. That no slot belongs to two jobs is checked when the next
// decision of the scheduler follows: one may take a slot from a job and give it to another, in
// facts of any order, which have the same time.
func (r *Replay) placed(e events.Event, b events.PlacementSet) {
	if !e.Time.Equal(r.decided) {
		r.checkSlots()
		r.decided = e.Time
	}
	j := r.Job(b.Job)
	j.Places, j.Wanted[e.Number] = b.Places, b.Workers
	seen := map[ident.Place]bool{}
	for _, p := range b.Places {
		if seen[p] {
			r.fail(3, "%s has %s twice", b.Job, p)
		}
		seen[p] = true
	}
}

// checkSlots checks that no slot belongs to two jobs.
func (r *Replay) checkSlots() {
	owner := map[ident.Place]ident.JobID{}
	for _, id := range slices.Sorted(maps.Keys(r.Jobs)) {
		for _, p := range r.Jobs[id].Places {
			if other, taken := owner[p]; taken && other != id {
				r.fail(3, "%s belongs to %s and to %s", p, other, id)
			}
			owner[p] = id
		}
	}
}

// sealed checks the members of a generation: they have ranks without gaps, in total, on each node,
// and among those with one rank on their nodes, and some placement wanted so many.
func (r *Replay) sealed(b events.RoundSealed) {
	j := r.Job(b.Job)
	if int(b.Generation) != len(j.Sealed)+1 {
		r.fail(1, "%s: %s was sealed after %d generations", b.Job, b.Generation, len(j.Sealed))
	}
	wanted := len(j.Wanted) == 0 // its nodes register themselves
	for _, w := range j.Wanted {
		wanted = wanted || w.Min <= len(b.Members) && len(b.Members) <= w.Max
	}
	if !wanted {
		r.fail(2, "%s: %s has %d members, %v are wanted", b.Job, b.Generation, len(b.Members), j.Wanted)
	}
	seen, local, cross := map[ident.Place]bool{}, map[ident.NodeID]int{}, map[int]int{}
	for i, m := range b.Members {
		if int(m.Rank) != i || m.LocalRank != local[m.Place.Node] || m.CrossRank != cross[m.LocalRank] || seen[m.Place] {
			r.fail(2, "%s of %s: %s, in order %d, has rank %d, local %d, cross %d", b.Generation, b.Job, m.Place, i, m.Rank, m.LocalRank, m.CrossRank)
		}
		seen[m.Place] = true
		local[m.Place.Node]++
		cross[m.LocalRank]++
		delete(j.replaced, m.Incarnation) // it is alive after all, and may die again
	}
	j.Sealed, j.Round = append(j.Sealed, b), events.RoundStateSealed
}

func (r *Replay) ended(e events.JobEnd, s events.JobState) {
	j := r.Job(e.Job)
	if j.State.Terminal() {
		r.fail(7, "%s has ended twice: %s, then %s", e.Job, j.State, s)
	}
	if j.Open != 0 {
		r.fail(11, "%s has ended with incident %d open", e.Job, j.Open)
	}
	if j.State, j.Reason = s, e.Reason; e.Reason == "" {
		r.fail(8, "%s has %s without a reason", e.Job, s)
	}
}

func (r *Replay) closed(b events.IncidentClosed) {
	j, p := r.Job(b.Job), b.Phases
	if j.Open != b.Incident {
		r.fail(11, "%s: incident %d closed, open is %d", b.Job, b.Incident, j.Open)
	}
	if min(p.Notice, p.Abort, p.Judge, p.Regroup, p.Sync, p.FirstStep) < 0 {
		r.fail(11, "%s: incident %d has a negative phase: %+v", b.Job, b.Incident, p)
	}
	j.Open, j.Incidents = 0, append(j.Incidents, b)
}

// Explained returns the incidents with the causes that a document gives, where an exit in the log
// is such a cause: the registry may learn why a worker ended after the incident was closed, and
// nothing is published again.
func (j *Job) Explained(stored []events.IncidentClosed) []events.IncidentClosed {
	all := slices.Clone(j.Incidents)
	first := len(all) - len(stored) // the stored ones are the newest
	for i := max(0, first); i < len(all); i++ {
		was, is := &all[i], stored[i-first].Cause
		explains := func(x events.WorkerExited) bool {
			return x.Generation == was.From && x.Place == *is.Place && x.Detail == is.Detail
		}
		if is.Place == nil || !is.Blames(*is.Place, is.Rank) || !slices.ContainsFunc(j.exits, explains) {
			continue
		}
		if was.Cause.Accuses(*is.Place, is.Rank) || was.Cause.Blames(*is.Place, is.Rank) {
			was.Cause = is
		}
	}
	return all
}
