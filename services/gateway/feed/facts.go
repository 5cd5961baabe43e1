package feed

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/internal/wait"
)

// readFacts follows the stream of facts from the oldest that the ring can hold.
func (f *Feed) readFacts(ctx context.Context) error {
	at := events.Follow{Stream: events.StreamFacts, Subjects: []string{events.AllFacts}, Start: events.FromFirst}
	newest := uint64(0)
	for {
		last, err := f.ports.Log.Last(ctx, events.StreamFacts, events.AllFacts)
		if err == nil {
			newest = last.Sequence
			at.Start, at.Sequence = events.FromSequence, newest-min(newest-1, recentFacts-1)
		}
		if err == nil || events.CodeOf(err) == events.NotFound {
			break
		}
		if f.warn("facts", err); !wait.Sleep(ctx, retryPause) {
			return context.Cause(ctx)
		}
	}
	once := Once{}
	return f.ports.Log.Follow(ctx, at, func(s events.Stored) error {
		i, ok := f.item(s, once)
		if !ok {
			return nil
		}
		f.Facts.Add(i)
		if s.Sequence > newest {
			for _, fn := range f.observers {
				fn(i.Event)
			}
		}
		return nil
	}, func() {
		f.caughtUp.Store(true)
		f.Live.Add(Item{Kind: "change", Data: []byte(`{"kind":"facts"}`)})
	})
}

// Once recognises facts that were published twice: a broker remembers their ids for a bounded time.
type Once map[onceKey]uint64

type onceKey struct {
	family events.Family
	entity string
}

// New reports whether a fact of an entity is met for the first time.
func (o Once) New(e events.Event) bool {
	k := onceKey{e.Body.Type().Family(), e.Entity}
	if e.Number > 0 && e.Number <= o[k] {
		return false
	}
	if e.Number > 0 {
		o[k] = e.Number
	}
	return true
}

// item decodes a stored fact; false if it is a repeat or cannot be read.
func (f *Feed) item(s events.Stored, once Once) (Item, bool) {
	e, err := cloudevent.DecodeStored(s)
	if errors.Is(err, events.ErrUnknownType) {
		return Item{}, false // written by a newer version
	}
	if err != nil {
		f.warn(s.Subject, err)
		return Item{}, false
	}
	if !once.New(e) {
		return Item{}, false
	}
	m, err := cloudevent.EncodeStructured(e)
	if err != nil {
		f.warn(s.Subject, err)
		return Item{}, false
	}
	i := Item{Sequence: s.Sequence, Kind: "fact", Data: bytes.TrimSpace(m.Data), Event: e}
	if e.Body.Type().Family() != events.FamilyNode {
		i.Job = events.JobID(e.Entity)
	}
	return i, true
}

// jobFamilies are the families of facts whose entity is the job.
var jobFamilies = []events.Family{events.FamilyJob, events.FamilyPlacement, events.FamilyRound, events.FamilyWorker, events.FamilyIncident}

// Stored calls fn with the stored facts from a position on, of one job or, if that is empty, of
// all, up to those that are stored now. An error of fn ends it.
func (f *Feed) Stored(ctx context.Context, job events.JobID, from uint64, fn func(Item) error) error {
	at := events.Follow{Stream: events.StreamFacts, Subjects: []string{events.AllFacts}, Start: events.FromSequence, Sequence: max(1, from)}
	if job != "" {
		at.Subjects = nil
		for _, family := range jobFamilies {
			at.Subjects = append(at.Subjects, events.FamilySubject(family, string(job)))
		}
	}
	once := Once{}
	return untilCaughtUp(ctx, f.ports.Log, at, func(s events.Stored) error {
		if i, ok := f.item(s, once); ok {
			return fn(i)
		}
		return nil
	})
}

// Spans calls fn with the messages with spans that were stored since a time, each of them one OTLP
// ExportTraceServiceRequest in protobuf.
func (f *Feed) Spans(ctx context.Context, since time.Time, fn func(otlp []byte) error) error {
	at := events.Follow{Stream: events.StreamSpans, Subjects: []string{events.AllSpans}, Start: events.FromTime, Since: since}
	return untilCaughtUp(ctx, f.ports.Log, at, func(s events.Stored) error { return fn(s.Data) })
}

var errCaughtUp = errors.New("caught up")

// untilCaughtUp calls fn with the messages that are stored now.
func untilCaughtUp(ctx context.Context, log events.Log, at events.Follow, fn func(events.Stored) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := log.Follow(ctx, at, fn, func() { cancel(errCaughtUp) })
	if errors.Is(err, errCaughtUp) || errors.Is(context.Cause(ctx), errCaughtUp) {
		return nil
	}
	return err
}
