package scheduler

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// reconcile emits facts from the records of other services.
func (k *records) reconcile(ctx context.Context, emit controller.Emit) error {
	// The pool is read first: a job in it without a record afterwards was removed, not submitted.
	var pool events.PoolView
	stored, _, err := k.pool.Load(ctx, events.PoolKey)
	if err == nil {
		pool, err = document.View[events.PoolView](stored)
	}
	if err != nil && !errors.Is(err, errcode.ErrNotFound) {
		return errcode.Errorf(errcode.Of(err), "scheduler: reconcile: read the pool: %w", err)
	}
	nodes, err := k.nodes.Records(ctx)
	if err != nil {
		return errcode.Errorf(errcode.Of(err), "scheduler: reconcile: read nodes: %w", err)
	}
	for _, n := range nodes {
		emit(plan.NodeInput(n.View, n.Number[events.FamilyNode]))
	}
	jobs, err := k.jobs.Records(ctx)
	if err != nil {
		return errcode.Errorf(errcode.Of(err), "scheduler: reconcile: read jobs: %w", err)
	}
	slices.SortStableFunc(jobs, func(a, b document.Record[events.JobHead]) int {
		return a.View.Submitted.Compare(b.View.Submitted)
	})
	for _, j := range jobs {
		if j.View.State == "" {
			continue // it has only a stop whose submit has not arrived
		}
		row, known := pool.Jobs[j.View.Job]
		delete(pool.Jobs, j.View.Job)
		if known && settled(row, j.View) {
			continue
		}
		for _, in := range jobInputs(j, known) {
			emit(in)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(pool.Jobs)) {
		// A job that is wrongly released would wait for ever.
		if removed, err := controller.JobRemoved(ctx, k.jobs.Bucket, id); err != nil || !removed {
			continue
		}
		emit(events.Input{Body: events.JobStopped{JobEnd: events.JobEnd{Job: id, Reason: "there is no record of it any more"}}})
	}
	return nil
}

// settled reports whether the pool has everything in the record of a job: most of ten thousand
// waiting jobs need no input.
func settled(row events.PlacementView, v events.JobHead) bool {
	// Otherwise the job is known only from a fact that arrived before its submit.
	complete := row.Waiting != "" || len(row.Places) > 0
	return complete && row.Workers == v.Spec.Workers && !v.State.Terminal() && v.OpenIncident == nil && len(v.Incidents) == 0
}

// complete adds the specification from the registry's record to a placement.
func (k *records) complete(ctx context.Context, b events.Body) (events.Body, error) {
	set, ok := b.(events.PlacementSet)
	if !ok || set.Spec.Name != "" {
		return b, nil
	}
	if r, ok := k.jobs.Known(string(set.Job)); ok && r.View.Spec.Name != "" {
		set.Spec = r.View.Spec
		return set, nil
	}
	stored, _, err := k.jobs.Bucket.Load(ctx, string(set.Job))
	if err != nil {
		return b, err
	}
	head, err := document.View[events.JobHead](stored)
	if err != nil {
		return b, err
	}
	set.Spec = head.Spec
	return set, nil
}

// jobInputs returns the facts with everything in a job's record, or none for a job that ended
// before it was in the pool.
func jobInputs(r document.Record[events.JobHead], placed bool) []events.Input {
	v, number := r.View, r.Number[events.FamilyJob]
	if v.Spec.SelfRegistered() {
		return nil
	}
	if v.State.Terminal() {
		if !placed {
			return nil
		}
		end := events.JobEnd{Job: v.Job, Reason: v.Reason, Code: v.Code}
		return []events.Input{{Number: number, Body: events.JobStopped{JobEnd: end}}}
	}
	ins := []events.Input{
		{Number: number, Body: events.JobSubmitted{Job: v.Job, Spec: v.Spec, By: v.By}},
		{Number: number, Body: events.JobScaled{Job: v.Job, Workers: v.Spec.Workers}},
	}
	incidents := r.Number[events.FamilyIncident]
	switch last := len(v.Incidents) - 1; {
	case v.OpenIncident != nil:
		ins = append(ins, events.Input{Number: incidents, Body: *v.OpenIncident})
	case last >= 0:
		ins = append(ins, events.Input{Number: incidents, Body: v.Incidents[last]})
	}
	return ins
}
