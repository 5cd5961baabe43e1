// Package view is what people and programs read of what the services store and tell: the plain form
// of a job, its summary, its timeline, what it waits for, and each fact in a sentence. The command
// line and the gateway give the same.
package view

import (
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/roster"
)

// Job is a job: the registry's document in the plain form, with one object for each worker and
// member instead of groups by node, and null for a missing rank.
type Job struct {
	events.JobView
	Workers         []Worker     `json:"workers"` // by slot: the newest incarnation of each
	Generations     []Generation `json:"generations"`
	Incidents       []Incident   `json:"incidents"`
	OpenIncident    *Open        `json:"open_incident,omitempty"`
	CountedFailures []Failure    `json:"counted_failures,omitempty"`
	FirstError      *Worker      `json:"first_error,omitempty"`
}

// Worker is one worker.
type Worker struct {
	roster.WorkerView
	Rank *int `json:"rank"` // null = none
}

// Generation is one generation.
type Generation struct {
	events.GenerationView
	Cause   Cause           `json:"cause"`
	Members []roster.Member `json:"members"` // by rank
}

// Incident is a closed incident.
type Incident struct {
	events.IncidentClosed
	Cause Cause `json:"cause"`
}

// Open is the incident that is not closed yet.
type Open struct {
	events.IncidentOpened
	Cause Cause `json:"cause"`
}

// Failure is a counted failure.
type Failure struct {
	events.CountedFailure
	Rank *int `json:"rank"`
}

// Cause is the cause of an incident or a generation.
type Cause struct {
	events.Cause
	Rank *int `json:"rank"`
}

// JobOf returns the plain form of a job. Its lists are not null.
func JobOf(v events.JobView) Job {
	p := Job{
		JobView: v, Workers: make([]Worker, len(v.Workers)), Generations: make([]Generation, len(v.Generations)),
		Incidents: make([]Incident, len(v.Incidents)), CountedFailures: make([]Failure, len(v.CountedFailures)),
	}
	for i, w := range v.Workers {
		p.Workers[i] = Worker{w, rank(w.Rank)}
	}
	for i, g := range v.Generations {
		p.Generations[i] = Generation{g, causeOf(g.Cause), append(make([]roster.Member, 0, len(g.Members)), g.Members...)}
	}
	for i, c := range v.Incidents {
		p.Incidents[i] = Incident{c, causeOf(c.Cause)}
	}
	for i, c := range v.CountedFailures {
		p.CountedFailures[i] = Failure{c, rank(c.Rank)}
	}
	if v.OpenIncident != nil {
		p.OpenIncident = &Open{*v.OpenIncident, causeOf(v.OpenIncident.Cause)}
	}
	if v.FirstError != nil {
		p.FirstError = &Worker{*v.FirstError, rank(v.FirstError.Rank)}
	}
	return p
}

// Jobs returns the plain form of jobs; it is never null.
func Jobs(views []events.JobView) []Job {
	all := make([]Job, len(views))
	for i, v := range views {
		all[i] = JobOf(v)
	}
	return all
}

// Members counts the members of the newest generation of a job that have not ended.
func Members(v events.JobView) (n int) {
	for _, w := range v.Workers {
		if !v.State.Terminal() && !w.State.Ended() && w.Rank >= 0 && w.WorkerRef.Generation == v.Generation {
			n++
		}
	}
	return n
}

// Unplanned counts the incidents of a job that were not planned.
func Unplanned(v events.JobView) (n int) {
	for _, i := range v.Incidents {
		if !i.Cause.Kind.Planned() {
			n++
		}
	}
	if o := v.OpenIncident; o != nil && !o.Cause.Kind.Planned() {
		n++
	}
	return n
}

// Used returns how many places the jobs of a pool have on each node.
func Used(pool events.PoolView) map[ident.NodeID]map[ident.JobID]int {
	all := map[ident.NodeID]map[ident.JobID]int{}
	for id, p := range pool.Jobs {
		for _, place := range p.Places {
			if all[place.Node] == nil {
				all[place.Node] = map[ident.JobID]int{}
			}
			all[place.Node][id]++
		}
	}
	return all
}

func causeOf(c events.Cause) Cause { return Cause{c, rank(c.Rank)} }

// RankOf is the rank of the plain form; -1 = there is none.
func RankOf(r *int) int {
	if r == nil {
		return -1
	}
	return *r
}

// rank is nil where there is none.
func rank(r int) *int {
	if r < 0 {
		return nil
	}
	return &r
}
