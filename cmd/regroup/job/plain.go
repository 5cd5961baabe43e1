package job

import "github.com/regroup-io/regroup/events"

// plain is a job in the output of -o json and -o yaml: the registry's document with one object for
// each worker instead of groups by node, and null for a missing rank. docs/cli.md describes it.
type plain struct {
	events.JobView
	Workers     []plainWorker     `json:"workers"` // by slot: the newest incarnation of each
	Generations []plainGeneration `json:"generations"`
	Incidents   []plainIncident   `json:"incidents"`
	Open        *plainOpen        `json:"open,omitempty"`
	Charges     []plainFailure    `json:"charges,omitempty"`
	FirstError  *plainWorker      `json:"first_error,omitempty"`
}

type plainWorker struct {
	events.WorkerView
	Rank *int `json:"rank"` // null = none
}

type plainGeneration struct {
	events.GenerationView
	Cause   plainCause      `json:"cause"`
	Members []events.Member `json:"members"` // by rank
}

type plainIncident struct {
	events.IncidentClosed
	Cause plainCause `json:"cause"`
}

type plainOpen struct {
	events.IncidentOpened
	Cause plainCause `json:"cause"`
}

type plainFailure struct {
	events.CountedFailure
	Rank *int `json:"rank"`
}

type plainCause struct {
	events.Cause
	Rank *int `json:"rank"`
}

func plainOf(v events.JobView) plain {
	p := plain{
		JobView: v, Workers: make([]plainWorker, len(v.Workers)), Generations: make([]plainGeneration, len(v.Generations)),
		Incidents: make([]plainIncident, len(v.Incidents)), Charges: make([]plainFailure, len(v.CountedFailures)),
	}
	for i, w := range v.Workers {
		p.Workers[i] = plainWorker{w, rank(w.Rank)}
	}
	for i, g := range v.Generations {
		p.Generations[i] = plainGeneration{g, causeOf(g.Cause), append(make([]events.Member, 0, len(g.Members)), g.Members...)}
	}
	for i, c := range v.Incidents {
		p.Incidents[i] = plainIncident{c, causeOf(c.Cause)}
	}
	for i, c := range v.CountedFailures {
		p.Charges[i] = plainFailure{c, rank(c.Rank)}
	}
	if v.OpenIncident != nil {
		p.Open = &plainOpen{*v.OpenIncident, causeOf(v.OpenIncident.Cause)}
	}
	if v.FirstError != nil {
		p.FirstError = &plainWorker{*v.FirstError, rank(v.FirstError.Rank)}
	}
	return p
}

// listed is never null.
func listed(views []events.JobView) []plain {
	all := make([]plain, len(views))
	for i, v := range views {
		all[i] = plainOf(v)
	}
	return all
}

func causeOf(c events.Cause) plainCause { return plainCause{c, rank(c.Rank)} }

// rank is nil where there is none.
func rank(r int) *int {
	if r < 0 {
		return nil
	}
	return &r
}
