package network

import (
	"errors"
	"fmt"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// Replay is the state derived from the log of facts only, by folding. Violations have the numbers
// of e2e/sim/invariants.go.
type Replay struct {
	Nodes map[events.NodeID]*ReplayedNode
	Jobs  map[events.JobID]*ReplayedJob
	Facts int

	last  map[string]uint64 // number, by family and entity
	wrong []error
}

// ReplayedNode is a node.
type ReplayedNode struct {
	State events.NodeState
	events.NodeFact
	Draining bool
}

// ReplayedJob is a job.
type ReplayedJob struct {
	Spec      spec.Job
	State     events.JobState
	Reason    string
	Places    []events.Place
	Round     events.RoundState
	Sealed    []events.RoundSealed
	Incidents []events.IncidentClosed
	exits     []events.WorkerExited
	wanted    spec.Workers
	open      int // incident
	opened    events.Generation
	replaced  map[events.Incarnation]bool
}

// Fold replays facts in the order of the log.
func Fold(facts []events.Event) *Replay {
	r := &Replay{Nodes: map[events.NodeID]*ReplayedNode{}, Jobs: map[events.JobID]*ReplayedJob{}, last: map[string]uint64{}}
	for _, e := range facts {
		if r.fresh(e) {
			r.Facts++
			r.fact(e.Body)
		}
	}
	return r
}

// Err returns all violations in the log.
func (r *Replay) Err() error { return errors.Join(r.wrong...) }

func (r *Replay) fault(invariant int, format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Errorf("invariant %d: %s", invariant, fmt.Sprintf(format, args...)))
}

// fresh reports whether a reader applies a fact, which drops numbers that it has seen.
func (r *Replay) fresh(e events.Event) bool {
	if e.Number == 0 {
		return true // a fact of an agent
	}
	f := e.Body.Type().Family()
	key := string(f) + "/" + e.Entity
	if f == events.FamilyPlacement {
		key = string(f) // the pool's document numbers the facts about all jobs
	}
	last := r.last[key]
	if e.Number <= last {
		return false
	}
	if e.Number != last+1 {
		r.fault(9, "%s: fact %d follows %d", key, e.Number, last)
	}
	r.last[key] = e.Number
	return true
}

func (r *Replay) job(id events.JobID) *ReplayedJob {
	j := r.Jobs[id]
	if j == nil {
		j = &ReplayedJob{replaced: map[events.Incarnation]bool{}}
		r.Jobs[id] = j
	}
	return j
}

func (r *Replay) fact(body events.Body) {
	switch b := body.(type) {
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
		j := r.job(b.Job)
		j.Places, j.wanted = b.Places, b.Workers
		r.placed(b)
	case events.PlacementReleased:
		r.job(b.Job).Places = nil
	case events.RoundOpened:
		j := r.job(b.Job)
		j.Round, j.opened = events.RoundStateOpen, b.Proposed
		if int(b.Proposed) <= len(j.Sealed) {
			r.fault(4, "%s: %s was opened after it was sealed", b.Job, b.Proposed)
		}
	case events.RoundSealed:
		r.sealed(b)
	case events.RoundClosed:
		r.job(b.Job).Round = events.RoundStateClosed
	default:
		r.registry(body)
	}
}

func (r *Replay) node(s events.NodeState, f events.NodeFact) {
	r.Nodes[f.Node] = &ReplayedNode{State: s, NodeFact: f}
}

// placed checks that no slot is assigned twice.
func (r *Replay) placed(b events.PlacementSet) {
	seen := map[events.Place]bool{}
	for _, p := range b.Places {
		if seen[p] {
			r.fault(3, "%s has %s twice", b.Job, p)
		}
		seen[p] = true
	}
	for id, j := range r.Jobs {
		for _, p := range j.Places {
			if id != b.Job && seen[p] {
				r.fault(3, "%s belongs to %s and to %s", p, id, b.Job)
			}
		}
	}
}

func (r *Replay) sealed(b events.RoundSealed) {
	j := r.job(b.Job)
	if int(b.Generation) != len(j.Sealed)+1 {
		r.fault(1, "%s: %s was sealed after %d generations", b.Job, b.Generation, len(j.Sealed))
	}
	if n := len(b.Members); n < j.wanted.Min || n > j.wanted.Max {
		r.fault(2, "%s: %s has %d members, %d:%d are wanted", b.Job, b.Generation, n, j.wanted.Min, j.wanted.Max)
	}
	local := map[events.NodeID]int{}
	for i, m := range b.Members {
		if m.Rank != i || m.LocalRank != local[m.Place.Node] {
			r.fault(2, "%s: %s has rank %d, local %d, at place %d, local %d", b.Job, b.Generation, m.Rank, m.LocalRank, i, local[m.Place.Node])
		}
		local[m.Place.Node]++
	}
	j.Sealed, j.Round = append(j.Sealed, b), events.RoundStateSealed
}

func (r *Replay) registry(body events.Body) {
	switch b := body.(type) {
	case events.JobSubmitted:
		j := r.job(b.Job)
		j.Spec, j.State = b.Spec, events.JobStateWaiting
	case events.WorkerExited:
		j := r.job(b.Job)
		j.exits = append(j.exits, b)
	case events.JobRespawned:
		j := r.job(b.Job)
		if j.replaced[b.Dead] {
			r.fault(10, "%s: %s at %s was replaced twice", b.Job, b.Dead, b.Place)
		}
		j.replaced[b.Dead] = true
	case events.JobSucceeded:
		r.ended(b.JobEnd, events.JobStateSucceeded)
	case events.JobFailed:
		r.ended(b.JobEnd, events.JobStateFailed)
	case events.JobStopped:
		r.ended(b.JobEnd, events.JobStateStopped)
	case events.IncidentOpened:
		j := r.job(b.Job)
		if j.open != 0 || b.Incident != len(j.Incidents)+1 {
			r.fault(11, "%s: incident %d opened after %d, open is %d", b.Job, b.Incident, len(j.Incidents), j.open)
		}
		j.open = b.Incident
	case events.IncidentClosed:
		j := r.job(b.Job)
		if j.open != b.Incident {
			r.fault(11, "%s: incident %d closed, open is %d", b.Job, b.Incident, j.open)
		}
		for _, ms := range []float64{b.Phases.Notice, b.Phases.Abort, b.Phases.Judge, b.Phases.Regroup, b.Phases.Sync, b.Phases.FirstStep} {
			if ms < 0 {
				r.fault(11, "%s: incident %d has a negative phase: %+v", b.Job, b.Incident, b.Phases)
			}
		}
		j.open, j.Incidents = 0, append(j.Incidents, b)
	}
}

func (r *Replay) ended(e events.JobEnd, s events.JobState) {
	j := r.job(e.Job)
	if j.State.Terminal() {
		r.fault(7, "%s was %s and is %s", e.Job, j.State, s)
	}
	j.State, j.Reason = s, e.Reason
	if j.open != 0 {
		r.fault(11, "%s ended with incident %d open", e.Job, j.open)
	}
}
