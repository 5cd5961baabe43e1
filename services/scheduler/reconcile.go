package scheduler

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/loop"
)

// follow watches the many records of which few change.
func (s *Service) follow(ctx context.Context, _ loop.Emit) error { return s.nodes.Follow(ctx) }

// reconcile makes up facts from the other judges' records.
func (s *Service) reconcile(ctx context.Context, emit loop.Emit) error {
	// The pool is read first: a job that is in it and has no record later was removed, not yet to come.
	var pool events.PoolView
	stored, _, err := s.o.Ports.Buckets.Bucket(events.BucketPlacements).Load(ctx, events.PoolKey)
	if err == nil {
		pool, err = events.DecodeView[events.PoolView](stored)
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
	slices.SortStableFunc(jobs, func(a, b events.Record[events.JobHead]) int {
		return a.View.Submitted.Compare(b.View.Submitted)
	})
	for _, j := range jobs {
		if j.View.State == "" {
			continue // it only remembers a stop whose submit has not come yet
		}
		_, placed := pool.Jobs[j.View.Job]
		for _, in := range jobInputs(j, placed) {
			emit(in)
		}
		delete(pool.Jobs, j.View.Job)
	}
	for _, id := range slices.Sorted(maps.Keys(pool.Jobs)) {
		emit(events.Input{Body: events.JobStopped{JobEnd: events.JobEnd{Job: id, Reason: "there is no record of it any more"}}})
	}
	return nil
}

// nodeInput is the one fact that says all about a node as it is on record.
func nodeInput(r events.Record[events.NodeView]) events.Input {
	v := r.View
	f := v.Fact()
	in := events.Input{Number: r.Number[events.FamilyNode]}
	switch {
	case v.State == events.NodeGone:
		in.Body = events.NodeLost{NodeFact: f}
	case v.State == events.NodeDeparted:
		in.Body = events.NodeLeft{NodeFact: f}
	case v.Draining:
		in.Body = events.NodeDraining{NodeFact: f}
	case v.State == events.NodeSuspect:
		in.Body = events.NodeSuspected{NodeFact: f}
	default:
		in.Body = events.NodeJoined{NodeFact: f}
	}
	return in
}

// jobInputs are the facts that say all about a job as it is on record. One that ended before it was ever in the pool is
// no news.
func jobInputs(r events.Record[events.JobHead], placed bool) []events.Input {
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
	case v.Open != nil:
		ins = append(ins, events.Input{Number: incidents, Body: *v.Open})
	case last >= 0:
		ins = append(ins, events.Input{Number: incidents, Body: v.Incidents[last]})
	}
	return ins
}
