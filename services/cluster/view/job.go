// Package view is what people and programs read of what the services store and tell: the plain form
// of a job, its summary, its timeline, what it waits for, and each fact in a sentence. The command
// line and the gateway give the same.
package view

import (
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
)

// Job is a job: the registry's document in the plain form, with one object for each worker and
// member instead of tables. Its lists are not null.
type Job struct {
	events.JobView
	Workers     []tables.WorkerView     `json:"workers"` // by slot: the newest incarnation of each
	Generations []Generation            `json:"generations"`
	Incidents   []events.IncidentClosed `json:"incidents"`
	Redundancy  *Redundancy             `json:"redundancy"` // null = nothing was reported, or the job has ended
}

// Generation is one generation.
type Generation struct {
	events.GenerationView
	Members []tables.Member `json:"members"` // by rank
}

// JobOf returns the plain form of a job.
func JobOf(v events.JobView) Job {
	p := Job{
		JobView: v, Workers: append([]tables.WorkerView{}, v.Workers...), Generations: make([]Generation, len(v.Generations)),
		Incidents: append([]events.IncidentClosed{}, v.Incidents...), Redundancy: RedundancyOf(v),
	}
	for i, g := range v.Generations {
		p.Generations[i] = Generation{g, append([]tables.Member{}, g.Members...)}
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

// LastWorld returns how many members the newest generation of a job had when it was sealed; 0 = the
// job had none.
func LastWorld(v events.JobView) int {
	if n := len(v.Generations); n > 0 {
		return v.Generations[n-1].World
	}
	return 0
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
