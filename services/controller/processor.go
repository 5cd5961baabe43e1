package controller

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
)

const (
	maxAttempts = 20  // to decide and store, before giving up because of conflicts
	ringSize    = 256 // input ids that a document keeps
)

// Processor applies inputs to the documents of a bucket, one entity at a time, synchronously: it
// has no goroutines and no clock. It caches the documents that it has seen, with their revisions; a
// stale one only costs a conflict and a second attempt. One goroutine at a time may use it.
type Processor[S any] struct {
	o         Options[S]
	replica   string // named in the launches of a LaunchSource; may be empty
	bucket    broker.Bucket
	cache     map[string]*entry[S]
	known     []string          // entities with a document in the cache, sorted
	highWater map[string]uint64 // highest revision seen of each document

	apply    func(S, events.Input, time.Time) (S, events.Decision)
	conclude func(S, events.Input, time.Time) (S, events.Decision) // nil = apply concludes
}

// Result is the result of processing. Everything in it is stored.
type Result struct {
	Inputs      []InputResult // one for each input
	Facts       []events.Event
	Spans       []events.Span
	Conflicts   int   // conflicts before the document was stored
	Unpublished error // why facts wait in the outbox, where Publish retries, or, with TooLarge, were dropped; the decision stands
}

// InputResult is the result of one input.
type InputResult struct {
	Reply   events.Body
	Refusal error
	Facts   int  // decided because of this input
	Repeat  bool // it had been applied before
}

// NewProcessor checks the options that concern single entities: Service, Machine, Bucket, Ports,
// Complete and NewID. It does no I/O.
func NewProcessor[S any](o Options[S]) (*Processor[S], error) {
	o = o.withDefaults()
	switch {
	case o.Service == "":
		return nil, errcode.Errorf(errcode.Invalid, "controller: the service has no name")
	case o.Machine == nil:
		return nil, errcode.Errorf(errcode.Invalid, "controller %s: no machine", o.Service)
	case o.Bucket == "":
		return nil, errcode.Errorf(errcode.Invalid, "controller %s: no bucket", o.Service)
	case o.Ports.Buckets == nil || o.Ports.Log == nil || o.Ports.Signals == nil:
		return nil, errcode.Errorf(errcode.Invalid, "controller %s: a port is missing", o.Service)
	}
	p := &Processor[S]{o: o, bucket: o.Ports.Buckets.Bucket(o.Bucket), cache: map[string]*entry[S]{}, highWater: map[string]uint64{}, apply: o.Machine.Step}
	if b, ok := o.Machine.(Batcher[S]); ok {
		p.apply, p.conclude = b.Apply, b.Conclude
	}
	return p, nil
}

// Process applies inputs: it stores at most one change of the entity's document and then publishes
// its facts.
//
// An error means that the inputs must be given again later: Conflict after too many conflicts,
// Newer when the document was written by a newer version, Unavailable when it is unknown whether
// the change was stored (a repeat finds out). Internal, Invalid and TooLarge are permanent.
func (p *Processor[S]) Process(ctx context.Context, entity string, inputs []events.Input, now time.Time) (Result, error) {
	return p.process(ctx, entity, inputs, now, hooks{stored: func(Result) {}, conflict: func(int) {}})
}

type hooks struct {
	stored   func(Result) // after the save and before the publication, for which a client need not wait
	conflict func(n int)  // the nth conflict
}

func (p *Processor[S]) process(ctx context.Context, entity string, inputs []events.Input, now time.Time, h hooks) (Result, error) {
	inputs = slices.Clone(inputs)
	for i := range inputs {
		inputs[i].Nonce = cmp.Or(inputs[i].Nonce, p.o.NewID())
	}
	for conflicts := range maxAttempts {
		out, again, err := p.attempt(ctx, entity, inputs, now, h.stored)
		out.Conflicts = conflicts
		if err != nil || again {
			p.uncache(entity) // the machine may have modified the cached state
		}
		if err != nil || !again {
			return out, err
		}
		h.conflict(conflicts + 1)
	}
	return Result{}, errcode.Errorf(errcode.Conflict, "%s %s: lost %d races in a row for its document", p.o.Service, entity, maxAttempts)
}

// attempt decides once; again = another replica has changed the document in the meantime.
func (p *Processor[S]) attempt(ctx context.Context, entity string, inputs []events.Input, now time.Time, stored func(Result)) (_ Result, again bool, _ error) {
	e, fresh, err := p.load(ctx, entity, now)
	if err != nil {
		return Result{}, false, err
	}
	// The decisions of another replica are published first, so that the outbox holds one decision
	// and order is kept. If that fails, this decision does not wait: it is appended to the outbox.
	// Launches of the other replica have an order of their own and are checked later.
	if err := p.publishOutbox(ctx, e, true); err != nil && e.overfull() {
		return Result{}, false, errcode.Errorf(errcode.Unavailable, "%s %s: its outbox is full: %w", p.o.Service, entity, err)
	}
	d, err := p.decide(ctx, entity, e, inputs, now)
	if err != nil {
		return Result{}, false, err
	}
	if !d.store {
		if !fresh && !d.transient && p.stale(ctx, entity, e) {
			return Result{}, true, nil
		}
		e.state = d.state
		stored(d.out)
		p.sendHints(d.hints)
		p.forget(ctx, entity, e, d)
		if e.revision == 0 {
			p.uncache(entity) // do not cache entities that do not exist: queries could exhaust memory
		}
		return d.out, false, nil
	}
	value, err := p.fit(entity, &d)
	if err != nil {
		return Result{}, false, err
	}
	revision, again, err := p.save(ctx, entity, value, e.revision)
	if again || err != nil {
		return Result{}, again, err
	}
	p.sawRevision(entity, revision)
	// Hints are sent first: they are the fastest way to the receivers, and need no storage.
	p.sendHints(d.hints)
	carried, olderUnpublished := !e.published, e.launchesWaiting()
	e.doc, e.state, e.revision, e.seenAt, e.published = d.doc, d.state, revision, now, false
	e.doc.Outbox, e.doc.Elided = d.outbox, nil
	p.list(entity)
	stored(d.out)
	d.out.Unpublished = p.publishOutbox(ctx, e, carried)
	d.out.Unpublished = cmp.Or(d.out.Unpublished, p.publishNew(ctx, e, d.launches, olderUnpublished))
	p.forget(ctx, entity, e, d)
	return d.out, false, nil
}

// save stores a document if it is still at a revision; again = it is not.
func (p *Processor[S]) save(ctx context.Context, entity string, value []byte, revision uint64) (_ uint64, again bool, _ error) {
	stored, err := p.bucket.Save(ctx, entity, value, revision)
	switch {
	case err == nil:
		return stored, false, nil
	case errors.Is(err, errcode.ErrConflict):
		return 0, true, nil
	case errors.Is(err, errcode.ErrTooLarge):
		return 0, false, errcode.Errorf(errcode.TooLarge, "%s %s: its document is too large: %w", p.o.Service, entity, err)
	}
	// It may have been stored. If it has changed since, the next attempt finds the inputs there.
	there, at, lerr := p.bucket.Load(ctx, entity)
	if lerr != nil && !errors.Is(lerr, errcode.ErrNotFound) {
		return 0, false, errcode.Errorf(errcode.Unavailable, "%s %s: it is unknown whether it was stored: %w", p.o.Service, entity, err)
	}
	if lerr != nil || !bytes.Equal(there, value) {
		return 0, true, nil //nolint:nilerr // the next attempt decides again
	}
	return at, false, nil
}

// stale reports whether the bucket holds another revision than e. A decision that changes nothing
// is not checked by a compare-and-set, and an input that seemed irrelevant to an old state must not
// be acknowledged.
func (p *Processor[S]) stale(ctx context.Context, entity string, e *entry[S]) bool {
	_, revision, err := p.bucket.Load(ctx, entity)
	if errors.Is(err, errcode.ErrNotFound) {
		return e.revision != 0
	}
	return err != nil || revision != e.revision
}

// sendHints sends signals. They may be lost, so an error is ignored.
func (p *Processor[S]) sendHints(hints []events.Signal) {
	for _, s := range hints {
		if data, err := bodies.Encode(s.Body); err == nil {
			_ = p.o.Ports.Signals.Send(s.Subject, data)
		}
	}
}

// forget removes the document of an entity that is over, once everything about it is published. A
// machine that decides Forget decides it again at the next Tick, so a replica that dies before the
// removal leaves nothing behind.
func (p *Processor[S]) forget(ctx context.Context, entity string, e *entry[S], d decided[S]) {
	switch {
	case !d.forget || !e.published || e.launchesWaiting() || e.revision == 0:
	case p.bucket.Delete(ctx, entity, e.revision) == nil:
		p.uncache(entity)
		delete(p.highWater, entity)
	}
}
