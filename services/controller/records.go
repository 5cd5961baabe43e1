package controller

import (
	"context"
	"errors"
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
)

// Follow returns a task that keeps a reader of another service's many records up to date.
func Follow[V any](r *document.Reader[V]) Task {
	return func(ctx context.Context, _ Emit) error { return r.Follow(ctx) }
}

// Own is Follow for the service's own records.
func Own[V any](r *document.Reader[V]) Watcher {
	return func(Emit) (func(string, []byte), func(), func()) { return r.Followed() }
}

// NodeInput returns the fact that a node's record amounts to, with its number among the facts.
func NodeInput(r document.Record[events.NodeView]) events.Input {
	in, f := events.Input{Number: r.Number[events.FamilyNode]}, r.View.Fact()
	switch r.View.State {
	case events.NodeStateLost:
		in.Body = events.NodeLost{NodeFact: f}
	case events.NodeStateLeft:
		in.Body = events.NodeLeft{NodeFact: f}
	default:
		in.Body = events.NodeJoined{NodeFact: f}
	}
	return in
}

// JobRemoved reads from the bucket itself whether a job has no record, or only that of its removal:
// a list may lag behind, and skips records that this version cannot read.
func JobRemoved(ctx context.Context, jobs broker.Bucket, job ident.JobID) (bool, error) {
	stored, _, err := jobs.Load(ctx, string(job))
	if errors.Is(err, errcode.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	v, err := document.View[events.JobHead](stored)
	return err == nil && v.State == "", nil // a record of a newer version exists
}

// LastFact returns the newest fact of a type about an entity, and its position in the log; 0 =
// there is none.
func LastFact[B events.Body](ctx context.Context, log broker.Log, entity string) (body B, at uint64, err error) {
	m, err := log.Last(ctx, events.StreamFacts, events.FactSubject(body.Type(), entity))
	if errors.Is(err, errcode.ErrNotFound) {
		return body, 0, nil
	}
	if err != nil {
		return body, 0, err
	}
	e, err := cloudevent.DecodeStored(m)
	if err != nil {
		return body, 0, err
	}
	body, _ = e.Body.(B)
	return body, m.Sequence, nil
}

// Reads reports whether a body is for a service: whether the catalogue names the service as a
// reader of the fact or command. Requests and signals, which are not in the catalogue, are for
// any receiver.
func Reads(service string, b events.Body) bool {
	row, ok := events.EntryOf(b.Type())
	return !ok || slices.Contains(row.Readers, service)
}
