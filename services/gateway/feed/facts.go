package feed

import (
	"bytes"
	"context"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/cluster"
)

// readFacts follows the stream of facts from the oldest that the ring can hold.
func (f *Feed) readFacts(ctx context.Context) error {
	at := broker.Follow{Stream: events.StreamFacts, Subjects: []string{events.AllFacts}, Start: broker.FromFirst}
	newest := uint64(0)
	for {
		last, err := f.ports.Log.Last(ctx, events.StreamFacts, events.AllFacts)
		if err == nil {
			newest = last.Sequence
			at.Start, at.Sequence = broker.FromSequence, newest-min(newest-1, recentFacts-1)
		}
		if err == nil || errcode.Of(err) == errcode.NotFound {
			break
		}
		if f.warn("facts", err); !wait.Sleep(ctx, retryPause) {
			return context.Cause(ctx)
		}
	}
	once := cluster.Decoder{}
	return f.ports.Log.Follow(ctx, at, func(s broker.Stored) error {
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

// item decodes a stored fact; false if it is a repeat or cannot be read.
func (f *Feed) item(s broker.Stored, once cluster.Decoder) (Item, bool) {
	e, ok, err := once.Decode(s)
	m := broker.Message{}
	if ok && err == nil {
		m, err = cloudevent.EncodeStructured(e)
	}
	if err != nil {
		f.warn(s.Subject, err)
		return Item{}, false
	}
	i := Item{Sequence: s.Sequence, Kind: "fact", Data: bytes.TrimSpace(m.Data), Event: e}
	if ok && e.Body.Type().Family() != events.FamilyNode {
		i.Job = ident.JobID(e.Entity)
	}
	return i, ok
}

// Stored calls fn with the stored facts from a position on, of one job or, if that is empty, of
// all, up to those that are stored now. An error of fn ends it.
func (f *Feed) Stored(ctx context.Context, job ident.JobID, from uint64, fn func(Item) error) error {
	at := broker.Follow{Stream: events.StreamFacts, Subjects: []string{events.AllFacts}, Start: broker.FromSequence, Sequence: max(1, from)}
	if job != "" {
		at.Subjects = cluster.JobSubjects(job)
	}
	once := cluster.Decoder{}
	return cluster.ReadStored(ctx, f.ports.Log, at, func(s broker.Stored) error {
		if i, ok := f.item(s, once); ok {
			return fn(i)
		}
		return nil
	})
}

// Spans calls fn with the messages with spans that were stored since a time, each of them one OTLP
// ExportTraceServiceRequest in protobuf.
func (f *Feed) Spans(ctx context.Context, since time.Time, fn func(otlp []byte) error) error {
	at := broker.Follow{Stream: events.StreamSpans, Subjects: []string{events.AllSpans}, Start: broker.FromTime, Since: since}
	return cluster.ReadStored(ctx, f.ports.Log, at, func(s broker.Stored) error { return fn(s.Data) })
}

// Read calls fn with the facts after a position: with those that the ring has dropped, as they are
// stored, of one job or, if that is empty, of all, and then with some of the ring. It returns the
// position of the last one, and a channel that is closed when there are more.
func (f *Feed) Read(ctx context.Context, job ident.JobID, after uint64, fn func(Item) error) (at uint64, more <-chan struct{}, err error) {
	take := func(i Item) error {
		after = max(after, i.Sequence)
		if job != "" && i.Job != job {
			return nil
		}
		return fn(i)
	}
	for {
		first, last := f.Facts.First(), f.Facts.Last()
		if after < last && after+1 < first {
			if err := f.Stored(ctx, job, after+1, take); err != nil {
				return after, nil, err
			}
			after = max(after, last)
		}
		items, more := f.Facts.After(after, batch)
		if after < f.Facts.Last() && after+1 < f.Facts.First() {
			continue // some were dropped meanwhile
		}
		for _, i := range items {
			if err := take(i); err != nil {
				return after, nil, err
			}
		}
		return after, more, nil
	}
}

// batch is how many items of a ring are read at once.
const batch = 256

// FollowItems calls fn with the facts after a position, and with those that come, until ctx or an
// error of fn ends it.
func (f *Feed) FollowItems(ctx context.Context, after uint64, fn func(Item) error) error {
	for {
		at, more, err := f.Read(ctx, "", after, fn)
		if err != nil {
			return err
		}
		after = at
		select {
		case <-more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Follow implements cluster.Facts; it calls fn with the facts of all subjects.
func (f *Feed) Follow(ctx context.Context, after uint64, _ []string, fn func(events.Event) error) error {
	return f.FollowItems(ctx, after, func(i Item) error { return fn(i.Event) })
}

// Newest implements cluster.Facts.
func (f *Feed) Newest(context.Context) uint64 { return f.Facts.Last() }

// Until waits until ok holds, which is called again after each change of a view.
func (f *Feed) Until(ctx context.Context, ok func() bool) error {
	for {
		_, changed := f.Live.After(f.Live.Last(), 1)
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
