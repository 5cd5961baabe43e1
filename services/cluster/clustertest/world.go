// Package clustertest is a system without services for tests of clients: the test writes documents
// and facts in the services' formats, and answers commands.
package clustertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/controller/controllertest"
)

// Now is the current time of commands under test.
var Now = time.Date(2026, 11, 21, 10, 32, 0, 0, time.UTC)

// World is one system.
type World struct {
	t     testing.TB
	ctx   context.Context //nolint:containedctx // the test's
	Ports broker.Ports
	facts int
}

// New returns an empty system that ends with the test.
func New(t testing.TB) *World {
	return &World{t: t, ctx: t.Context(), Ports: memory.New().Ports()}
}

// Put stores a service's document with this view.
func (w *World) Put(bucket, key string, view any) {
	w.t.Helper()
	controllertest.Record(w.t, w.Ports, bucket, key, 0, view)
}

// Job stores the registry's document of a job.
func (w *World) Job(v events.JobView) {
	w.t.Helper()
	w.Put(events.BucketJobs, string(v.Job), v)
}

// Publish stores a fact; empty fields of its envelope are filled in.
func (w *World) Publish(e events.Event) {
	w.t.Helper()
	w.facts++
	e.ID = cmp.Or(e.ID, fmt.Sprintf("fact-%d", w.facts))
	e.Source = controllertest.Source(e)
	if e.Time.IsZero() {
		e.Time = Now
	}
	m, err := cloudevent.Encode(e)
	w.must(err)
	_, err = w.Ports.Log.Publish(w.ctx, m)
	w.must(err)
}

// Print stores output of a worker that is in no generation.
func (w *World) Print(job ident.JobID, place ident.Place, text string) {
	w.t.Helper()
	_, err := w.Ports.Log.Publish(w.ctx, broker.Message{Subject: events.LogSubject(job, string(place.Node), fmt.Sprint(int(place.Slot))), Data: []byte(text)})
	w.must(err)
}

// PrintAs is Print as agents do it, with the worker's rank and generation.
func (w *World) PrintAs(job ident.JobID, m tables.Member, g ident.Generation, text string) {
	w.t.Helper()
	slot := fmt.Sprint(int(m.Place.Slot))
	_, err := w.Ports.Log.Publish(w.ctx, broker.Message{
		Subject: events.LogSubject(job, string(m.Place.Node), slot), Data: []byte(text),
		Header: map[string][]string{
			output.HeaderNode: {string(m.Place.Node)}, output.HeaderSlot: {slot}, output.HeaderRank: {fmt.Sprint(m.Rank)},
			output.HeaderGeneration: {fmt.Sprint(uint64(g))}, output.HeaderStream: {"stderr"},
		},
	})
	w.must(err)
}

// Answer passes every command to fn, which acts for the services, until the test ends.
func (w *World) Answer(fn func(events.Event)) {
	ctx, cancel := context.WithCancel(context.Background())
	var g errgroup.Group
	g.Go(func() error {
		return w.Ports.Log.Follow(ctx, broker.Follow{Stream: events.StreamCommands, Subjects: []string{events.AllCommands}, Start: broker.FromFirst},
			func(s broker.Stored) error {
				e, err := cloudevent.Decode(s.Header, s.Data)
				if err != nil {
					return err
				}
				fn(e)
				return nil
			}, nil)
	})
	w.t.Cleanup(func() {
		cancel()
		if err := g.Wait(); !errors.Is(err, context.Canceled) {
			w.t.Errorf("commands: %v", err)
		}
	})
}

// Answering makes services answer pings until the test ends, and the registry report the given
// progress.
func (w *World) Answering(progress events.ProgressAnswer, services ...string) {
	ctx, cancel := context.WithCancel(context.Background())
	var g errgroup.Group
	var served []string
	serve := func(service, verb string, b events.Body) {
		answer, err := bodies.Encode(b)
		w.must(err)
		subject := events.RequestSubject(service, verb)
		served = append(served, subject)
		g.Go(func() error {
			return w.Ports.Calls.Serve(ctx, subject, service, func(context.Context, []byte) ([]byte, error) { return answer, nil })
		})
	}
	for _, s := range services {
		serve(s, events.VerbAlive, events.Alive{Service: s})
		if s == events.ServiceRegistry {
			serve(s, events.VerbProgress, progress)
		}
	}
	w.t.Cleanup(func() {
		cancel()
		_ = g.Wait() // they end by cancellation
	})
	for _, subject := range served { // they are subscribed once they answer
		for w.ctx.Err() == nil {
			if _, err := w.Ports.Calls.Call(w.ctx, subject, nil); err == nil {
				break
			}
		}
	}
}

func (w *World) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}
