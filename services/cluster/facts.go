package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/english"
)

// ErrStop is returned by a callback to end its reader without an error.
var ErrStop = errors.New("seen enough")

// jobFamilies are the families of facts whose entity is the job.
var jobFamilies = []events.Family{events.FamilyJob, events.FamilyPlacement, events.FamilyRound, events.FamilyWorker, events.FamilyIncident}

// JobSubjects are those of the facts about a job.
func JobSubjects(job ident.JobID) (all []string) {
	for _, f := range jobFamilies {
		all = append(all, events.FamilySubject(f, string(job)))
	}
	return all
}

// Decoder decodes stored facts in order. It recognises those that were published twice: a broker
// remembers their ids for a bounded time.
type Decoder map[decoderKey]uint64

type decoderKey struct {
	family events.Family
	entity string
}

// Decode returns false for a repeat, and for a fact that a newer version has written. The error is
// that of one that cannot be read, which any client can publish: it must not end a reader.
func (d Decoder) Decode(s broker.Stored) (e events.Event, ok bool, err error) {
	e, err = cloudevent.DecodeStored(s)
	if errors.Is(err, events.ErrUnknownType) {
		return e, false, nil
	}
	if err != nil {
		return e, false, err
	}
	k := decoderKey{e.Body.Type().Family(), e.Entity}
	if e.Number > 0 && e.Number <= d[k] {
		return e, false, nil
	}
	if e.Number > 0 {
		d[k] = e.Number
	}
	return e, true, nil
}

// ReadStored calls fn with the messages that are stored now. An error of fn ends it.
func ReadStored(ctx context.Context, log broker.Log, at broker.Follow, fn func(broker.Stored) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := log.Follow(ctx, at, fn, func() { cancel(ErrStop) })
	if errors.Is(err, ErrStop) || errors.Is(context.Cause(ctx), ErrStop) {
		return nil
	}
	return err
}

// unreadableShown is how many facts that cannot be read are named; of more only their number is.
const unreadableShown = 3

// Follow calls fn with every fact of one job in the order in which they were stored, from the
// first. It blocks until fn returns an error; ErrStop ends it without one.
func (c *Client) Follow(ctx context.Context, job ident.JobID, fn func(events.Event) error) error {
	return c.facts(ctx, *c.at.Load(), JobSubjects(job), false, fn)
}

// Facts calls fn with the facts of one job that are stored now.
func (c *Client) Facts(ctx context.Context, job ident.JobID, fn func(events.Event) error) error {
	return c.facts(ctx, *c.at.Load(), JobSubjects(job), true, fn)
}

// AllFacts is Follow, or with stored Facts, for every job and node, of all servers.
func (c *Client) AllFacts(ctx context.Context, stored bool, fn func(events.Event) error) error {
	g, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex
	for _, s := range c.all {
		g.Go(func() error {
			return c.facts(ctx, s, []string{events.AllFacts}, stored, func(e events.Event) error {
				mu.Lock()
				defer mu.Unlock()
				return fn(e)
			})
		})
	}
	return g.Wait()
}

func (c *Client) facts(ctx context.Context, at Server, subjects []string, stored bool, fn func(events.Event) error) error {
	decoder, malformed := Decoder{}, 0
	warn := func(err error) {
		if malformed++; c.Warn != nil && malformed <= unreadableShown {
			c.Warn(err)
		}
	}
	defer func() {
		if more := malformed - unreadableShown; c.Warn != nil && more > 0 {
			c.Warn(errcode.Errorf(errcode.Invalid, "another %s cannot be read: passed over", english.Plural(more, "fact")))
		}
	}()
	return c.read(ctx, at, broker.Follow{Stream: events.StreamFacts, Subjects: subjects, Start: broker.FromFirst}, stored, func(s broker.Stored) error {
		e, ok, err := decoder.Decode(s)
		if err != nil {
			warn(errcode.Errorf(errcode.Of(err), "fact %d on %s cannot be read and is passed over: %w", s.Sequence, s.Subject, err))
		}
		if !ok {
			return nil
		}
		c.show(&e)
		return fn(e)
	})
}

// read follows a stream of one server; with stored it ends after the messages that are present. It
// fails if no stored message arrives within AnswerWithin, or if the server has ended. The messages
// of an idle server are complete.
func (c *Client) read(ctx context.Context, at Server, f broker.Follow, stored bool, fn func(broker.Stored) error) error {
	ctx, done := at.serving(ctx)
	defer done()
	if !stored && !at.Idle {
		if err := at.Ports.Log.Follow(ctx, f, fn, nil); !errors.Is(err, ErrStop) {
			return err
		}
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(c.AnswerWithin, func() {
		cancel(errcode.Errorf(errcode.Unavailable, "stream %s: nothing came for %s; more time: --timeout", f.Stream, c.AnswerWithin))
	})
	defer silent.Stop()
	return ReadStored(ctx, at.Ports.Log, f, func(s broker.Stored) error {
		silent.Stop() // fn may take long
		defer silent.Reset(c.AnswerWithin)
		return fn(s)
	})
}

// Progress calls fn with the progress signals of a job; some may be lost. It blocks like Follow.
func (c *Client) Progress(ctx context.Context, job ident.JobID, fn func(events.Progress) error) error {
	at := *c.at.Load()
	ctx, done := at.serving(ctx)
	defer done()
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := at.Ports.Signals.Hear(inner, events.ProgressSubject(job), "", func(_ string, data []byte) {
		p, err := bodies.Decode[events.Progress](data)
		if err != nil || inner.Err() != nil {
			return // a malformed signal counts as lost
		}
		c.show(&p)
		if err := fn(p); err != nil {
			cancel(err)
		}
	}, nil)
	if cause := context.Cause(inner); ctx.Err() == nil && cause != nil {
		err = cause
	}
	if errors.Is(err, ErrStop) {
		return nil
	}
	return err
}

// Spans calls fn with every stored span message: each is one OTLP ExportTraceServiceRequest in
// protobuf.
func (c *Client) Spans(ctx context.Context, fn func(otlp []byte) error) error {
	return c.read(ctx, *c.at.Load(), broker.Follow{Stream: events.StreamSpans, Subjects: []string{events.AllSpans}, Start: broker.FromFirst}, true,
		func(s broker.Stored) error { return fn(s.Data) })
}
