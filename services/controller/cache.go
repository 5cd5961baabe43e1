package controller

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
)

// entry is one document as this replica knows it.
type entry[S any] struct {
	doc       document.Document
	state     S
	revision  uint64    // 0 = there is no document
	published bool      // all of doc.Outbox is known to be published
	launched  uint64    // launches up to this revision are known to be published
	raw       []byte    // the document as stored, if it is not decoded yet
	seenAt    time.Time // when this replica first saw the revision
	err       error     // the document cannot be read by this version
}

// launchesWaiting reports whether there are launches that are not known to be published.
func (e *entry[S]) launchesWaiting() bool {
	l, ok := any(e.state).(LaunchSource)
	return ok && l.LaunchRevision() > e.launched
}

// load returns the cached document of an entity, or loads it; fresh = it was loaded now.
func (p *Processor[S]) load(ctx context.Context, entity string, now time.Time) (e *entry[S], fresh bool, err error) {
	if e := p.cached(entity); e != nil {
		return e, false, e.err
	}
	value, revision, err := p.bucket.Load(ctx, entity)
	switch {
	case errors.Is(err, errcode.ErrNotFound):
		e = &entry[S]{state: p.o.Machine.New(entity), published: true, seenAt: now}
		if e.doc.State, err = encode(e.state); err != nil {
			return nil, false, errcode.Errorf(errcode.Internal, "%s %s: encode state: %w", p.o.Service, entity, err)
		}
	case err != nil:
		return nil, false, errcode.Errorf(errcode.Of(err), "%s %s: load: %w", p.o.Service, entity, err)
	default:
		if err := p.checkRegression(entity, revision); err != nil {
			return nil, false, err
		}
		p.sawRevision(entity, revision)
		e = p.decode(entity, value, revision, now)
	}
	p.cache[entity] = e
	p.list(entity)
	return e, true, e.err
}

func (p *Processor[S]) decode(entity string, value []byte, revision uint64, now time.Time) *entry[S] {
	e := &entry[S]{state: p.o.Machine.New(entity), revision: revision, seenAt: now}
	e.doc, e.err = document.Decode(value)
	if e.err == nil {
		e.err = decode(e.doc.State, &e.state)
	}
	if e.err == nil {
		e.doc.Outbox, e.err = expand(e.state, e.doc)
		e.doc.Elided = nil
	}
	if e.err != nil {
		code := errcode.Of(e.err)
		if code != errcode.Newer && p.repairs() {
			code = errcode.Unavailable // it is made again
		}
		e.err = errcode.Errorf(code, "%s %s: read its document: %w", p.o.Service, entity, e.err)
		return e
	}
	e.launched, e.published = e.doc.Published, len(e.doc.Outbox) == 0
	return e
}

// cached returns what this replica has of an entity, decoded, or nil. A document from the watch is
// decoded on first use: most are replaced before.
func (p *Processor[S]) cached(entity string) *entry[S] {
	e := p.cache[entity]
	if e != nil && e.raw != nil {
		e = p.decode(entity, e.raw, e.revision, e.seenAt)
		p.cache[entity] = e
	}
	return e
}

// A broker that was restored from an old copy of its store shows documents of the past. What was
// decided since is published and done: deciding it again would seal a generation twice. A replica
// that has seen a higher revision therefore does not decide on such a document. Restarting the
// replica accepts the past.

func (p *Processor[S]) sawRevision(entity string, revision uint64) {
	p.highWater[entity] = max(p.highWater[entity], revision)
}

// checkRegression returns why a loaded document must not be built on, or nil.
func (p *Processor[S]) checkRegression(entity string, revision uint64) error {
	if seen := p.highWater[entity]; revision < seen {
		return errcode.Errorf(errcode.Unavailable,
			"%s %s: its document went back from revision %d to %d: the broker runs on an old copy of its store. Bring the newer one back, or start this service again to go on from the old one",
			p.o.Service, entity, seen, revision)
	}
	return nil
}

// Update applies an update from the watch of the bucket; value nil = removed.
func (p *Processor[S]) Update(entity string, value []byte, revision uint64, now time.Time) {
	if e, ok := p.cache[entity]; ok && e.revision >= revision {
		return
	}
	if value == nil {
		p.uncache(entity)
		delete(p.highWater, entity)
		return
	}
	p.sawRevision(entity, revision)
	p.cache[entity] = &entry[S]{raw: value, revision: revision, seenAt: now}
	p.list(entity)
}

func (p *Processor[S]) uncache(entity string) {
	delete(p.cache, entity)
	p.list(entity)
}

// list updates the list of the entities that have a document after a change of this one. Every
// heartbeat reads the list, and it rarely changes.
func (p *Processor[S]) list(entity string) {
	e := p.cache[entity]
	i, listed := slices.BinarySearch(p.known, entity)
	switch exists := e != nil && e.revision > 0; {
	case exists && !listed:
		p.known = slices.Insert(p.known, i, entity)
	case !exists && listed:
		p.known = slices.Delete(p.known, i, i+1)
	}
}

// Known returns the entities that have a document, sorted. The slice is valid until the next
// change, and must not be modified.
func (p *Processor[S]) Known() []string { return p.known }

// State returns the cached state of an entity; it must not be modified.
func (p *Processor[S]) State(entity string) (state S, ok bool) {
	if e := p.cached(entity); e != nil && e.revision > 0 && e.err == nil {
		return e.state, true
	}
	return state, false
}

// Decoded is State, but false if the cached document is not decoded yet.
func (p *Processor[S]) Decoded(entity string) (state S, ok bool) {
	if e := p.cache[entity]; e != nil && e.raw == nil && e.revision > 0 && e.err == nil {
		return e.state, true
	}
	return state, false
}

// Undecoded returns the length of a document from the watch that is not decoded yet, or 0.
func (p *Processor[S]) Undecoded(entity string) int {
	if e, ok := p.cache[entity]; ok {
		return len(e.raw)
	}
	return 0
}

// Deadline returns when the entity must be given a Tick; zero = never.
func (p *Processor[S]) Deadline(entity string) time.Time {
	if e := p.cached(entity); e != nil && e.revision > 0 && e.err == nil {
		return p.o.Machine.Deadline(e.state)
	}
	return time.Time{}
}

// UnpublishedSince returns since when this replica has seen facts or launches of the entity that
// are not known to be published; zero = there are none.
func (p *Processor[S]) UnpublishedSince(entity string) time.Time {
	if e := p.cached(entity); e != nil && e.err == nil && (!e.published || e.launchesWaiting()) {
		return e.seenAt
	}
	return time.Time{}
}
