package scheduler

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/services/controller"
)

// followNodes and followJobs watch the many records of which few change.
func (s *Service) followNodes(ctx context.Context, _ controller.Emit) error {
	return s.nodes.Follow(ctx)
}
func (s *Service) followJobs(ctx context.Context, _ controller.Emit) error { return s.jobs.Follow(ctx) }

// reconcile makes up facts from the other judges' records.
func (s *Service) reconcile(ctx context.Context, emit controller.Emit) error {
	// The pool is read first: a job that is in it and has no record later was removed, not yet to
	// come.
	var pool events.PoolView
	stored, _, err := s.o.Ports.Buckets.Bucket(events.BucketPlacements).Load(ctx, events.PoolKey)
	if err == nil {
		pool, err = document.View[events.PoolView](stored)
	}
	if err != nil && !errors.Is(err, events.ErrNotFound) {
		return events.Errorf(events.CodeOf(err), "scheduler: reconcile: read the pool: %w", err)
	}
	nodes, err := s.nodes.Records(ctx)
	if err != nil {
		return events.Errorf(events.CodeOf(err), "scheduler: reconcile: read nodes: %w", err)
	}
	for _, n := range nodes {
		emit(nodeInput(n))
	}
	jobs, err := s.jobs.Records(ctx)
	if err != nil {
		return events.Errorf(events.CodeOf(err), "scheduler: reconcile: read jobs: %w", err)
	}
	slices.SortStableFunc(jobs, func(a, b document.Record[events.JobHead]) int {
		return a.View.Submitted.Compare(b.View.Submitted)
	})
	for _, j := range jobs {
		if j.View.State == "" {
			continue // it only remembers a stop whose submit has not come yet
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
		// What was read may lag behind, and a job that is taken for removed would wait for ever:
		// the store itself is asked.
		if gone, err := removed(ctx, s.jobs.Bucket, id); err != nil || !gone {
			continue
		}
		emit(events.Input{Body: events.JobStopped{JobEnd: events.JobEnd{Job: id, Reason: "there is no record of it any more"}}})
	}
	return nil
}

// removed tells whether there is no record of a job, or only one that it was removed.
func removed(ctx context.Context, jobs events.Bucket, id events.JobID) (bool, error) {
	stored, _, err := jobs.Load(ctx, string(id))
	if errors.Is(err, events.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	v, err := document.View[events.JobHead](stored)
	return err == nil && v.State == "", nil // one of a newer version is there
}

// settled tells whether the pool has all that the record of a job says: of ten thousand that wait
// nothing needs to be said again.
func settled(row events.PlacementView, v events.JobHead) bool {
	told := row.Waiting != "" || len(row.Places) > 0 // else it is known only from a fact that came before its submit
	return told && row.Workers == v.Spec.Workers && !v.State.Terminal() && v.OpenIncident == nil && len(v.Incidents) == 0
}

// complete adds the specification to a placement: the registry's record has it.
func (s *Service) complete(ctx context.Context, b events.Body) (events.Body, error) {
	set, ok := b.(events.PlacementSet)
	if !ok || set.Spec.Name != "" {
		return b, nil
	}
	if r, ok := s.jobs.Known(string(set.Job)); ok && r.View.Spec.Name != "" {
		set.Spec = r.View.Spec
		return set, nil
	}
	stored, _, err := s.jobs.Bucket.Load(ctx, string(set.Job))
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

// nodeInput is the one fact that says all about a node as it is on record.
func nodeInput(r document.Record[events.NodeView]) events.Input {
	v := r.View
	f := v.Fact()
	in := events.Input{Number: r.Number[events.FamilyNode]}
	switch {
	case v.State == events.NodeStateLost:
		in.Body = events.NodeLost{NodeFact: f}
	case v.State == events.NodeStateLeft:
		in.Body = events.NodeLeft{NodeFact: f}
	case v.Draining:
		in.Body = events.NodeDraining{NodeFact: f}
	case v.State == events.NodeStateSuspected:
		in.Body = events.NodeSuspected{NodeFact: f}
	default:
		in.Body = events.NodeJoined{NodeFact: f}
	}
	return in
}

// jobInputs are the facts that say all about a job as it is on record. One that ended before it was
// ever in the pool is no news.
func jobInputs(r document.Record[events.JobHead], placed bool) []events.Input {
	v, number := r.View, r.Number[events.FamilyJob]
	if v.Spec.External() {
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
