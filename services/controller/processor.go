package controller

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
)

const (
	attempts = 20  // decisions per turn before a storm of conflicts is given up
	ringSize = 256 // input ids that a document remembers
)

// ProcessorOptions are what a Processor needs.
type ProcessorOptions[S any] struct {
	Service string // as in events.ServiceDiscovery ...; part of the ids and sources of facts
	Machine Machine[S]
	Bucket  string
	Ports   events.Ports
	NewID   func() string // nonces
	Replica string        // named in the launches of a LaunchSource; may be empty

	Complete func(ctx context.Context, b events.Body) (events.Body, error) // as in Options; may be nil
}

// Processor takes inputs into account, one entity at a time, synchronously: no goroutines, no clock. It keeps the documents
// that it has seen, with their revisions; a stale one costs a conflict and a second decision, nothing else.
// One goroutine at a time may use it.
type Processor[S any] struct {
	o      ProcessorOptions[S]
	bucket events.Bucket
	kept   map[string]*entry[S]
	newest map[string]uint64 // highest revision met of each document

	take     func(S, events.Input, time.Time) (S, events.Decision)
	conclude func(S, events.Input, time.Time) (S, events.Decision) // nil = take concludes
}

// entry is one document as this replica knows it.
type entry[S any] struct {
	doc      document.Document
	state    S
	revision uint64    // 0 = there is no document
	told     bool      // all of doc.Outbox is known to be told
	launched uint64    // launches up to this revision are known to be told
	value    []byte    // the document as stored, if it is not decoded yet
	since    time.Time // when this replica first saw the revision
	broken   error     // the document cannot be read by this version
}

// Result is what a turn has led to. Everything in it is stored.
type Result struct {
	Answers []InputResult // one for each input
	Facts   []events.Event
	Spans   []events.Span
	Lost    int   // races for the document that were lost before it was stored
	Untold  error // why facts wait in the outbox, where Tell tries again, or TooLarge: were left out. The turn itself stands
}

// InputResult is what became of one input.
type InputResult struct {
	Reply   events.Body
	Refusal error
	Facts   int  // decided because of this input
	Repeat  bool // it had been taken into account before
}

// NewProcessor makes a Processor. It does no I/O.
func NewProcessor[S any](o ProcessorOptions[S]) (*Processor[S], error) {
	switch {
	case o.Service == "":
		return nil, events.Errorf(events.Invalid, "controller: the service has no name")
	case o.Machine == nil:
		return nil, events.Errorf(events.Invalid, "controller %s: no machine", o.Service)
	case o.Bucket == "":
		return nil, events.Errorf(events.Invalid, "controller %s: no bucket", o.Service)
	case o.Ports.Buckets == nil || o.Ports.Log == nil || o.Ports.Signals == nil:
		return nil, events.Errorf(events.Invalid, "controller %s: a port is missing", o.Service)
	case o.NewID == nil:
		return nil, events.Errorf(events.Invalid, "controller %s: no source of nonces", o.Service)
	}
	t := &Processor[S]{o: o, bucket: o.Ports.Buckets.Bucket(o.Bucket), kept: map[string]*entry[S]{}, newest: map[string]uint64{}, take: o.Machine.Step}
	if b, ok := o.Machine.(Batcher[S]); ok {
		t.take, t.conclude = b.Take, b.Conclude
	}
	return t, nil
}

// Turn takes inputs into account: one stored change of the entity's document at most, then its facts are told.
//
// An error means that the inputs must be given again later: Conflict after many lost races, Newer when the document was
// written by a newer version, Unavailable when it is not known whether the change was stored (a repeat finds out).
// Internal, Invalid and TooLarge will come back however often it is tried.
func (t *Processor[S]) Turn(ctx context.Context, entity string, inputs []events.Input, now time.Time) (Result, error) {
	return t.turn(ctx, entity, inputs, now, course{stored: func(Result) {}, lost: func(int) {}})
}

// course is what a host does in the course of a turn.
type course struct {
	stored func(Result) // between the store and the telling: who asked needs not wait for what others are told
	lost   func(n int)  // the race for the document was lost for the nth time
}

func (t *Processor[S]) turn(ctx context.Context, entity string, inputs []events.Input, now time.Time, c course) (Result, error) {
	inputs = slices.Clone(inputs)
	for i := range inputs {
		inputs[i].Nonce = cmp.Or(inputs[i].Nonce, t.o.NewID())
	}
	for lost := range attempts {
		out, again, err := t.try(ctx, entity, inputs, now, c.stored)
		out.Lost = lost
		if err != nil || again {
			delete(t.kept, entity) // the machine may have modified the state in it
		}
		if err != nil || !again {
			return out, err
		}
		c.lost(lost + 1)
	}
	return Result{}, events.Errorf(events.Conflict, "%s %s: lost %d races in a row for its document", t.o.Service, entity, attempts)
}

// try decides once; again = somebody else was first.
func (t *Processor[S]) try(ctx context.Context, entity string, inputs []events.Input, now time.Time, stored func(Result)) (_ Result, again bool, _ error) {
	e, fresh, err := t.entry(ctx, entity, now)
	if err != nil {
		return Result{}, false, err
	}
	// What another replica decided is told first, so that the outbox holds one turn and order is kept. If that fails,
	// the decision must not wait for it: the rest stays in the outbox, before ours. Its launches are on their way from
	// there: they have an order of their own, and are looked for later.
	if err := t.tell(ctx, e, true); err != nil && e.crowded() {
		return Result{}, false, events.Errorf(events.Unavailable, "%s %s: too much waits to be told: %w", t.o.Service, entity, err)
	}

	d, err := t.decide(ctx, entity, e, inputs, now)
	if err != nil {
		return Result{}, false, err
	}
	if !d.store {
		if !fresh && !d.lossy && t.stale(ctx, entity, e) {
			return Result{}, true, nil
		}
		e.state = d.state
		stored(d.out)
		t.poke(d.pokes)
		t.end(ctx, entity, e, d)
		if e.revision == 0 {
			delete(t.kept, entity) // whoever asks about what does not exist must not fill the memory
		}
		return d.out, false, nil
	}
	value, err := t.fit(entity, &d)
	if err != nil {
		return Result{}, false, err
	}
	revision, err := t.bucket.Save(ctx, entity, value, e.revision)
	switch {
	case err == nil:
	case errors.Is(err, events.ErrConflict):
		return Result{}, true, nil
	case errors.Is(err, events.ErrTooLarge):
		return Result{}, false, events.Errorf(events.TooLarge, "%s %s: its document is too large: %w", t.o.Service, entity, err)
	default:
		// It may have been stored. If somebody has built on it meanwhile, deciding again finds the inputs in its ring.
		there, at, lerr := t.bucket.Load(ctx, entity)
		if lerr != nil && !errors.Is(lerr, events.ErrNotFound) {
			return Result{}, false, events.Errorf(events.Unavailable, "%s %s: not known whether it was stored: %w", t.o.Service, entity, err)
		}
		if lerr != nil || !bytes.Equal(there, value) {
			return Result{}, true, nil //nolint:nilerr // it is decided again
		}
		revision = at
	}
	t.met(entity, revision)
	// What may be lost is said first: it is the quickest way to those who wait, and needs no store.
	t.poke(d.pokes)
	carried, late := !e.told, e.untold()
	e.doc, e.state, e.revision, e.since, e.told = d.doc, d.state, revision, now, false
	e.doc.Outbox, e.doc.Elided = d.full, nil
	stored(d.out)
	d.out.Untold = t.tell(ctx, e, carried)
	if err := t.launch(ctx, e, d.launch, late); err != nil && d.out.Untold == nil {
		d.out.Untold = err
	}
	t.end(ctx, entity, e, d)
	return d.out, false, nil
}

// entry returns the entity's document as known, or loads it; fresh = it was loaded now.
func (t *Processor[S]) entry(ctx context.Context, entity string, now time.Time) (e *entry[S], fresh bool, err error) {
	if e := t.known(entity); e != nil {
		return e, false, e.broken
	}
	value, revision, err := t.bucket.Load(ctx, entity)
	switch {
	case errors.Is(err, events.ErrNotFound):
		e = &entry[S]{state: t.o.Machine.New(entity), told: true, since: now}
		if e.doc.State, err = encode(e.state); err != nil {
			return nil, false, events.Errorf(events.Internal, "%s %s: encode state: %w", t.o.Service, entity, err)
		}
	case err != nil:
		return nil, false, events.Errorf(events.CodeOf(err), "%s %s: load: %w", t.o.Service, entity, err)
	default:
		if err := t.past(entity, revision); err != nil {
			return nil, false, err
		}
		t.met(entity, revision)
		e = t.read(entity, value, revision, now)
	}
	t.kept[entity] = e
	return e, true, e.broken
}

// read makes an entry of a stored document.
func (t *Processor[S]) read(entity string, value []byte, revision uint64, now time.Time) *entry[S] {
	e := &entry[S]{state: t.o.Machine.New(entity), revision: revision, since: now}
	e.doc, e.broken = document.Decode(value)
	if e.broken == nil {
		e.broken = decode(e.doc.State, &e.state)
	}
	if e.broken == nil {
		e.doc.Outbox, e.broken = recall(e.state, e.doc)
		e.doc.Elided = nil
	}
	if e.broken != nil {
		e.broken = events.Errorf(events.CodeOf(e.broken), "%s %s: read its document: %w", t.o.Service, entity, e.broken)
		return e
	}
	e.launched, e.told = e.doc.Published, len(e.doc.Outbox) == 0
	return e
}

// untold tells whether there are launches that are not known to be told.
func (e *entry[S]) untold() bool {
	l, ok := any(e.state).(LaunchSource)
	return ok && l.Launched() > e.launched
}

// known returns what this replica has of an entity, decoded, or nil. A document that the watch brought is decoded when it is
// first asked for: most are replaced before.
func (t *Processor[S]) known(entity string) *entry[S] {
	e := t.kept[entity]
	if e != nil && e.value != nil {
		e = t.read(entity, e.value, e.revision, e.since)
		t.kept[entity] = e
	}
	return e
}

// stale tells whether the store holds another revision than e. A turn that changes nothing is not checked by any
// compare-and-set, and an input that looked meaningless beside an old state must not be acknowledged.
func (t *Processor[S]) stale(ctx context.Context, entity string, e *entry[S]) bool {
	_, revision, err := t.bucket.Load(ctx, entity)
	if errors.Is(err, events.ErrNotFound) {
		return e.revision != 0
	}
	return err != nil || revision != e.revision
}

// poke sends hints. They may be lost, so nothing is done about an error.
func (t *Processor[S]) poke(pokes []events.Signal) {
	for _, p := range pokes {
		if data, err := events.EncodeBody(p.Body); err == nil {
			_ = t.o.Ports.Signals.Send(p.Subject, data)
		}
	}
}

// end removes the document of an entity that is over, once everything about it is told. A machine that says Forget says
// it again at the next Tick, so a replica that dies before this leaves nothing behind for ever.
func (t *Processor[S]) end(ctx context.Context, entity string, e *entry[S], d decided[S]) {
	switch {
	case !d.forget || !e.told || e.untold() || e.revision == 0:
	case t.bucket.Delete(ctx, entity, e.revision) == nil:
		delete(t.kept, entity)
		delete(t.newest, entity)
	}
}

// Seen takes in what the watch of the bucket shows; value nil = removed.
func (t *Processor[S]) Seen(entity string, value []byte, revision uint64, now time.Time) {
	if e, ok := t.kept[entity]; ok && e.revision >= revision {
		return
	}
	if value == nil {
		delete(t.kept, entity)
		delete(t.newest, entity)
		return
	}
	t.met(entity, revision)
	t.kept[entity] = &entry[S]{value: value, revision: revision, since: now}
}

// Known returns the entities that have a document, sorted.
func (t *Processor[S]) Known() []string {
	known := slices.Sorted(maps.Keys(t.kept))
	return slices.DeleteFunc(known, func(k string) bool { return t.kept[k].revision == 0 })
}

// State returns what is known of the entity's state; it must not be modified.
func (t *Processor[S]) State(entity string) (S, bool) {
	if e := t.known(entity); e != nil && e.revision > 0 && e.broken == nil {
		return e.state, true
	}
	var zero S
	return zero, false
}

// Peek is State without decoding: false if the newest document has not been read.
func (t *Processor[S]) Peek(entity string) (S, bool) {
	if e, ok := t.kept[entity]; ok && e.value == nil && e.revision > 0 && e.broken == nil {
		return e.state, true
	}
	var zero S
	return zero, false
}

// Unread tells whether the watch has brought a document of the entity that is not decoded yet, and how long it is.
func (t *Processor[S]) Unread(entity string) int {
	if e, ok := t.kept[entity]; ok {
		return len(e.value)
	}
	return 0
}

// Deadline says when the entity must be given a Tick; zero = never.
func (t *Processor[S]) Deadline(entity string) time.Time {
	if e := t.known(entity); e != nil && e.revision > 0 && e.broken == nil {
		return t.o.Machine.Deadline(e.state)
	}
	return time.Time{}
}

// Waiting returns since when this replica has seen facts of the entity that are not known to be told; zero = none wait.
func (t *Processor[S]) Waiting(entity string) time.Time {
	if e := t.known(entity); e != nil && e.broken == nil && (!e.told || e.untold()) {
		return e.since
	}
	return time.Time{}
}
