package main

import (
	"context"
	"errors"
	"time"

	"github.com/regroup-io/regroup/events"
)

// arrival is a fact with the moment at which it arrived here.
type arrival struct {
	at   time.Time
	body events.Body
}

var errEnough = errors.New("enough")

// watch calls fn with every fact of the worker, round and job families as it arrives, beginning now, until fn says enough.
// ready is called once the reading stands.
func (c *cluster) watch(ctx context.Context, ready func() error, fn func(arrival) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := c.ports.Log.Follow(ctx, events.Follow{Stream: events.StreamFacts, Start: events.FromNew, Subjects: []string{
		events.FamilySubject(events.FamilyWorker, "*"), events.FamilySubject(events.FamilyRound, "*"), events.FamilySubject(events.FamilyJob, "*"),
	}}, func(m events.Stored) error {
		at := time.Now()
		e, err := events.Decode(m.Header, m.Data)
		if err != nil {
			return err
		}
		return fn(arrival{at: at, body: e.Body})
	}, func() {
		if err := ready(); err != nil {
			cancel(err)
		}
	})
	switch {
	case errors.Is(err, errEnough):
		return nil
	case err == nil || errors.Is(err, context.Canceled):
		return context.Cause(ctx)
	}
	return err
}
