package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/wait"
)

// facts stores the agent's facts in order, and tries each until it is stored. The machine never
// waits for it.
type facts struct {
	opt    Options
	source string
	wake   chan struct{}
	mu     sync.Mutex
	queue  []queuedFact
}

type queuedFact struct {
	event events.Event
	at    time.Time
}

func newFacts(o Options) *facts {
	return &facts{opt: o, source: events.AgentSource(o.Node, o.Incarnation), wake: make(chan struct{}, 1)}
}

// enqueue adds a fact that the machine decided at a time.
func (f *facts) enqueue(t worker.PublishFact, at time.Time) {
	f.mu.Lock()
	f.queue = append(f.queue, queuedFact{at: at, event: events.Event{
		ID: ulid.Make().String(), Source: f.source, Entity: string(t.Job), Time: at, Trace: t.Trace, Body: t.Body,
	}})
	f.mu.Unlock()
	wait.Notify(f.wake)
}

func (f *facts) first() (queuedFact, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		return queuedFact{}, false
	}
	return f.queue[0], true
}

func (f *facts) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = f.queue[1:]
}

// drained waits until all facts are stored.
func (f *facts) drained(ctx context.Context) {
	queued := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.queue)
	}
	for queued() > 0 && wait.Sleep(ctx, time.Millisecond) {
		continue
	}
	if n := queued(); n > 0 {
		f.opt.Logger.Warn("facts could not be stored before the end", "node", f.opt.Node, "count", n)
	}
}

func (f *facts) run(ctx context.Context) error {
	retry := wait.Backoff{First: 50 * time.Millisecond, Max: 2 * time.Second}
	for ctx.Err() == nil {
		t, ok := f.first()
		if !ok {
			select {
			case <-f.wake:
			case <-ctx.Done():
			}
			continue
		}
		err := f.publish(ctx, t)
		switch {
		case err == nil:
			f.drop()
			retry.Reset()
		case errors.Is(err, errcode.ErrInvalid), errors.Is(err, errcode.ErrTooLarge):
			f.opt.Logger.ErrorContext(tracing.NewContext(ctx, t.event.Trace), "fact cannot be stored and is dropped", "job", t.event.Entity, "kind", t.event.Body.Type(), "reason", err)
			f.drop()
		case ctx.Err() == nil:
			retry.Sleep(ctx)
		}
	}
	return nil
}

// publish stores one fact. The age of an exit includes its time in the queue, by this clock
// alone.
func (f *facts) publish(ctx context.Context, t queuedFact) error {
	x, exit := t.event.Body.(events.WorkerExited)
	if exit {
		x.AgeMS += events.Milliseconds(time.Since(t.at))
		t.event.Body = x
	}
	err := f.store(ctx, t.event)
	if exit && errors.Is(err, errcode.ErrTooLarge) {
		x.Lines = nil
		t.event.Body = x
		err = f.store(ctx, t.event)
	}
	return err
}

func (f *facts) store(ctx context.Context, e events.Event) error {
	m, err := cloudevent.Encode(e)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(tracing.NewContext(ctx, e.Trace), callTimeout)
	defer cancel()
	_, err = f.opt.Ports.Log.Publish(ctx, m)
	return err
}
