package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/english"
)

// A document may be lost in part: a broker that was killed while it wrote may come back with the
// revision before, and one without identities stores what anybody publishes. The log then knows
// more than the document, and the state is made of it again.

// Memory makes states from the log.
type Memory[S any] struct {
	// Recall applies a fact about an entity to its state: one of the service says what was decided,
	// others are inputs, which may have been applied before.
	Recall func(s S, e events.Event, stored time.Time) S
	Family []events.Family // of the facts that are recalled
	// Over reports whether a state need not be compared with the log at the start. Nil = all.
	Over func(s S) bool
	// Complete adds to a state that was made from facts what they do not have. May be nil.
	Complete func(ctx context.Context, s S) (S, error)
	// Rebuild makes the state without Recall, for an entity that facts are not about, and says of
	// what. May be nil.
	Rebuild func(ctx context.Context) (s S, of string, err error)
}

// repairLimit limits the repair of one document.
const repairLimit = time.Minute

// Broken reports whether the document of an entity cannot be read, and may be made again.
func (p *Processor[S]) Broken(entity string) bool {
	e := p.cached(entity)
	return e != nil && e.err != nil && p.repairs() && errcode.Of(e.err) != errcode.Newer
}

func (p *Processor[S]) repairs() bool { return p.o.Memory.Recall != nil || p.o.Memory.Rebuild != nil }

// Repair makes a document again that cannot be read, or lacks what was decided last, and says what
// it did; "" = nothing was wrong.
func (p *Processor[S]) Repair(ctx context.Context, entity string, now time.Time) (repaired string, err error) {
	value, revision, err := p.bucket.Load(ctx, entity)
	switch {
	case errors.Is(err, errcode.ErrNotFound):
		p.uncache(entity)
		return "", nil
	case err != nil:
		return "", errcode.Errorf(errcode.Of(err), "%s %s: load: %w", p.o.Service, entity, err)
	}
	if err := p.checkRegression(entity, revision); err != nil {
		return "", err
	}
	e := p.decode(entity, value, revision, now)
	if errcode.Of(e.err) == errcode.Newer { // it is left to replicas of that version
		return "", nil
	}
	var made recalled[S]
	switch {
	case e.err == nil && (p.o.Memory.Recall == nil || p.o.Memory.Over != nil && p.o.Memory.Over(e.state)): // repaired by another replica
		return "", nil
	case e.err == nil:
		if made, err = p.applyNewer(ctx, entity, e); err != nil || made.of == "" {
			return "", err
		}
		repaired = fmt.Sprintf("its document lacked what was decided last: it has %s now", made.of)
	default:
		if made, err = p.rebuild(ctx, entity); err != nil {
			return "", err
		}
		repaired = fmt.Sprintf("its document could not be read (%v): it is made of %s again", e.err, made.of)
	}
	if made.of == "" { // nothing was ever said about it
		if err := p.bucket.Delete(ctx, entity, revision); err != nil && !errors.Is(err, errcode.ErrConflict) {
			return "", errcode.Errorf(errcode.Of(err), "%s %s: remove its document: %w", p.o.Service, entity, err)
		}
		p.uncache(entity)
		return fmt.Sprintf("a document that cannot be read (%v), and of which nothing is known, is removed", e.err), nil
	}
	d := decided[S]{state: made.state, doc: document.Document{
		Schema: document.Schema, Version: e.doc.Version + 1, Applied: e.doc.Applied, Number: made.number, Outbox: e.doc.Outbox, Published: e.launched,
	}}
	if d.doc.State, err = encode(d.state); err != nil {
		return "", errcode.Errorf(errcode.Internal, "%s %s: encode state: %w", p.o.Service, entity, err)
	}
	if value, err = p.fit(entity, &d); err != nil {
		return "", err
	}
	p.uncache(entity)
	_, again, err := p.save(ctx, entity, value, revision)
	if again || err != nil { // another replica was first, or the next try sees what is stored
		return "", err
	}
	return repaired, nil
}

// recalled is a state that was made from the log.
type recalled[S any] struct {
	state  S
	of     string // of what; "" = of nothing
	number map[events.Family]uint64
}

func (p *Processor[S]) rebuild(ctx context.Context, entity string) (recalled[S], error) {
	if p.o.Memory.Rebuild != nil {
		s, of, err := p.o.Memory.Rebuild(ctx)
		return recalled[S]{state: s, of: of}, err
	}
	made := recalled[S]{state: p.o.Machine.New(entity), number: map[events.Family]uint64{}}
	n, err := p.recall(ctx, entity, &made, 1)
	if err != nil || n == 0 {
		return made, err
	}
	made.of = english.Plural(n, "fact")
	return made, p.complement(ctx, &made)
}

// complement adds to a state what facts do not have.
func (p *Processor[S]) complement(ctx context.Context, made *recalled[S]) (err error) {
	if p.o.Memory.Complete != nil {
		made.state, err = p.o.Memory.Complete(ctx, made.state)
	}
	return err
}

// applyNewer applies the facts that are newer than a document, if the service has decided one of
// them.
func (p *Processor[S]) applyNewer(ctx context.Context, entity string, e *entry[S]) (recalled[S], error) {
	made := recalled[S]{state: e.state, number: maps.Clone(e.doc.Number)}
	if made.number == nil {
		made.number = map[events.Family]uint64{}
	}
	from, missing := uint64(1), false
	for _, f := range p.o.Memory.Family {
		if !p.writes(f) {
			continue
		}
		last, err := p.lastNumber(ctx, f, entity)
		if err != nil {
			return made, err
		}
		missing = missing || last > e.doc.Number[f]
	}
	if !missing {
		return made, nil
	}
	// What was applied after the newest fact that the document has may be missing too.
	for at := uint64(1); ; {
		m, ev, ok, err := p.nextFact(ctx, entity, at)
		if err != nil {
			return made, err
		}
		if !ok {
			break
		}
		f := ev.Body.Type().Family()
		if p.own(ev) && ev.Number > 0 && ev.Number <= e.doc.Number[f] {
			from = m.Sequence + 1
		}
		at = m.Sequence + 1
	}
	n, err := p.recall(ctx, entity, &made, from)
	if err != nil || n == 0 {
		return made, err
	}
	made.of = english.Plural(n, "more fact")
	return made, p.complement(ctx, &made)
}

// recall applies the facts of the log from a position on, and returns how many there were.
func (p *Processor[S]) recall(ctx context.Context, entity string, made *recalled[S], from uint64) (n int, err error) {
	for {
		m, e, ok, err := p.nextFact(ctx, entity, from)
		if err != nil || !ok {
			return n, err
		}
		from = m.Sequence + 1
		f := e.Body.Type().Family()
		if p.own(e) {
			if e.Number > 0 && e.Number <= made.number[f] {
				continue
			}
			made.number[f] = max(made.number[f], e.Number)
		}
		made.state = p.o.Memory.Recall(made.state, e, m.Time)
		n++
	}
}

// nextFact returns the first fact of the recalled families about an entity at a position or after
// it; false = there is none. Those that this version cannot read, or that are on a wrong subject,
// are passed over, as they were when they came.
func (p *Processor[S]) nextFact(ctx context.Context, entity string, from uint64) (m broker.Stored, e events.Event, ok bool, err error) {
	for {
		m, err := p.o.Ports.Log.Next(ctx, events.StreamFacts, events.FamilySubject("*", entity), from)
		switch {
		case errors.Is(err, errcode.ErrNotFound):
			return m, e, false, nil
		case err != nil:
			return m, e, false, errcode.Errorf(errcode.Of(err), "%s %s: read its facts: %w", p.o.Service, entity, err)
		}
		e, err := cloudevent.DecodeStored(m)
		if err == nil && p.recalls(e.Body.Type().Family()) {
			return m, e, true, nil
		}
		from = m.Sequence + 1
	}
}

func (p *Processor[S]) recalls(f events.Family) bool { return slices.Contains(p.o.Memory.Family, f) }

// own reports whether the service has decided a fact.
func (p *Processor[S]) own(e events.Event) bool {
	return e.Source == events.ServiceSource(p.o.Service)
}

// writes reports whether the service writes the facts of a family.
func (p *Processor[S]) writes(f events.Family) bool {
	return slices.ContainsFunc(events.Catalog(), func(row events.Entry) bool {
		return row.Class == events.ClassFact && row.Type.Family() == f && row.Writer == p.o.Service
	})
}

// repair repairs a document and reports it.
func (c *Core[S]) repair(ctx context.Context, entity string) {
	ctx, cancel := context.WithTimeout(ctx, repairLimit)
	defer cancel()
	repaired, err := c.processor.Repair(ctx, entity, c.o.Now())
	if repaired != "" {
		c.o.Observe(Observation{Service: c.o.Service, Entity: entity, Repaired: repaired})
	}
	c.o.failed(entity, "", err)
	if err != nil {
		c.timers.set(timerKey{entity, repairTimer}, c.o.Now().Add(retryAfter))
		return
	}
	c.setTimers(entity, time.Time{})
}
