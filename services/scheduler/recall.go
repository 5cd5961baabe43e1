package scheduler

import (
	"context"
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// rebuild rebuilds the lost pool from the records of nodes and jobs and from the newest fact about
// the places of each job. The text says from what.
func (k *records) rebuild(ctx context.Context) (plan.State, string, error) {
	var none plan.State
	nodes, err := document.All[events.NodeView](ctx, k.nodes.Bucket)
	if err != nil {
		return none, "", errcode.Errorf(errcode.Of(err), "scheduler: rebuild the pool: read nodes: %w", err)
	}
	jobs, err := document.All[events.JobHead](ctx, k.jobs.Bucket)
	if err != nil {
		return none, "", errcode.Errorf(errcode.Of(err), "scheduler: rebuild the pool: read jobs: %w", err)
	}
	slices.SortStableFunc(jobs, func(a, b document.Record[events.JobHead]) int {
		return a.View.Submitted.Compare(b.View.Submitted)
	})
	var known []events.Input
	for _, n := range nodes {
		known = append(known, plan.NodeInput(n.View, n.Number[events.FamilyNode]))
	}
	var placed []plan.Placed
	for _, j := range jobs {
		if j.View.State == "" || j.View.State.Terminal() {
			continue
		}
		p := plan.Placed{Submitted: events.JobSubmitted{Job: j.View.Job, Spec: j.View.Spec, By: j.View.By}, Number: j.Number[events.FamilyJob]}
		if p.Set, err = k.places(ctx, j.View.Job); err != nil {
			return none, "", err
		}
		placed = append(placed, p)
	}
	return plan.Recalled(known, placed), fmt.Sprintf("the records of %s and %s", english.Plural(len(known), "node"), english.Plural(len(placed), "job")), nil
}

// places returns the newest fact about the places of a job; nil = there is none, or the job has
// released them since.
func (k *records) places(ctx context.Context, job ident.JobID) (*events.PlacementSet, error) {
	set, at, err := controller.LastFact[events.PlacementSet](ctx, k.log, string(job))
	if err != nil || at == 0 {
		return nil, err
	}
	_, released, err := controller.LastFact[events.PlacementReleased](ctx, k.log, string(job))
	if err != nil || released > at {
		return nil, err
	}
	return &set, nil
}
