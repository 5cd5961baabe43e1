package scheduler

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/loop"
)

// record is a judge's document with the number of the last fact that it accounts for. The number orders what is made up
// from the record among the facts themselves: a record that was read before a fact came must not undo it.
type record[V any] struct {
	view   V
	number uint64
}

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
	nodes, err := records[events.NodeView](ctx, s.o.Ports, events.BucketNodes, events.FamilyNode)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		emit(nodeInput(n))
	}
	jobs, err := records[events.JobView](ctx, s.o.Ports, events.BucketJobs, events.FamilyJob)
	if err != nil {
		return err
	}
	slices.SortStableFunc(jobs, func(a, b record[events.JobView]) int {
		return cmp.Or(a.view.Submitted.Compare(b.view.Submitted), cmp.Compare(a.view.Job, b.view.Job))
	})
	for _, j := range jobs {
		_, placed := pool.Jobs[j.view.Job]
		for _, in := range jobInputs(j, placed) {
			emit(in)
		}
		delete(pool.Jobs, j.view.Job)
	}
	for _, id := range slices.Sorted(maps.Keys(pool.Jobs)) {
		emit(events.Input{Body: events.JobStopped{JobEnd: events.JobEnd{Job: id, Reason: "there is no record of it any more"}}})
	}
	return nil
}

// records reads a bucket. Documents of a newer version are left out: their facts will come.
func records[V any](ctx context.Context, p events.Ports, bucket string, f events.Family) ([]record[V], error) {
	var out []record[V]
	err := loop.List(ctx, p.Buckets.Bucket(bucket), func(_ string, value []byte) {
		d, err := events.DecodeDocument(value)
		if err != nil {
			return
		}
		if v, err := events.DecodeView[V](value); err == nil {
			out = append(out, record[V]{view: v, number: d.Number[f]})
		}
	})
	if err != nil {
		return nil, events.Errorf(events.CodeOf(err), "scheduler: reconcile: list %s: %w", bucket, err)
	}
	return out, nil
}

// nodeInput is the one fact that says all about a node as it is on record.
func nodeInput(r record[events.NodeView]) events.Input {
	v := r.view
	f := events.NodeFact{Node: v.Node, Incarnation: v.Incarnation, Slots: v.Slots, Address: v.Address, Reason: v.Reason}
	in := events.Input{Number: r.number}
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
func jobInputs(r record[events.JobView], placed bool) []events.Input {
	v := r.view
	if v.State.Terminal() {
		if !placed {
			return nil
		}
		end := events.JobEnd{Job: v.Job, Reason: v.Reason, Code: v.Code}
		return []events.Input{{Number: r.number, Body: events.JobStopped{JobEnd: end}}}
	}
	return []events.Input{
		{Number: r.number, Body: events.JobSubmitted{Job: v.Job, Spec: v.Spec, By: v.By}},
		{Number: r.number, Body: events.JobScaled{Job: v.Job, Workers: v.Spec.Workers}},
	}
}
