package gateway

import (
	"context"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/events/usage"
	"github.com/regroup-io/regroup/services/gateway/feed"
)

// WorkerNow is what a worker does now, as far as this gateway has heard.
type WorkerNow struct {
	Place      ident.Place        `json:"place"`
	Rank       ident.Rank         `json:"rank"`
	PID        int                `json:"pid"`
	State      tables.WorkerState `json:"state"`
	Generation ident.Generation   `json:"generation"`
	// Of its newest report in this generation; absent = there was none.
	HeardAt time.Time `json:"heard_at,omitzero"`
	Step    uint64    `json:"step,omitempty"`
	// StepSeconds is how long a step has taken it of late, and OwnSeconds the part of that in which
	// it did not wait for other ranks; absent = unknown.
	StepSeconds *float64 `json:"step_seconds,omitempty"`
	OwnSeconds  *float64 `json:"own_seconds,omitempty"`
	// What it uses together with the processes that it has started; absent = unknown.
	Usage   *usage.Of `json:"usage,omitempty"`
	UsageAt time.Time `json:"usage_at,omitzero"`
}

// WorkerList is what the workers of a job do now.
type WorkerList struct {
	Workers []WorkerNow `json:"workers"` // by slot, the newest incarnation of each
}

func (g *Gateway) workers(_ context.Context, v events.JobView) (WorkerList, error) {
	paces, used := g.feed.Paces(v.Job, v.Generation), map[ident.NodeID]feed.NodeUsage{}
	all := WorkerList{make([]WorkerNow, len(v.Workers))}
	for i, w := range v.Workers {
		now := WorkerNow{Place: w.Place, Rank: w.Rank, PID: w.PID, State: w.State, Generation: w.Generation}
		if p, ok := paces[w.Place]; ok && w.Generation == v.Generation {
			now.HeardAt, now.Step = p.At, p.Step
			if p.StepSeconds > 0 {
				now.StepSeconds = &p.StepSeconds
				if p.Waited != nil {
					now.OwnSeconds = new(p.StepSeconds * (1 - *p.Waited))
				}
			}
		}
		u, known := used[w.Place.Node]
		if !known {
			u, _ = g.feed.Usage(w.Place.Node)
			used[w.Place.Node] = u
		}
		for _, of := range u.Workers {
			if of.Job == v.Job && of.Place == w.Place && of.PID == w.PID && w.PID > 0 {
				now.Usage, now.UsageAt = &of.Of, u.At
			}
		}
		all.Workers[i] = now
	}
	return all, nil
}
