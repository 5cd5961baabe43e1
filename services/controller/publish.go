package controller

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/english"
)

// Publish publishes those messages in the outbox of an entity that the log does not have.
func (p *Processor[S]) Publish(ctx context.Context, entity string) error {
	e := p.cached(entity)
	if e == nil || e.err != nil {
		return nil //nolint:nilerr // a document that cannot be read has nothing to publish
	}
	if err := p.publishOutbox(ctx, e, true); err != nil {
		return err
	}
	return p.republishLaunches(ctx, e)
}

// publishOutbox publishes the outbox in order. inDoubt = another replica or an earlier attempt may
// have published some of it: the broker drops repeats for some minutes only, so messages up to the
// newest one in the log are skipped.
func (p *Processor[S]) publishOutbox(ctx context.Context, e *entry[S], inDoubt bool) error {
	if e.published {
		return nil
	}
	newest := map[string]uint64{}
	var left error
	for _, m := range e.doc.Outbox {
		if inDoubt {
			there, err := p.inLog(ctx, m, newest)
			if err != nil {
				return err
			}
			if there {
				continue
			}
		}
		m, err := p.complete(ctx, m)
		if errors.Is(err, errcode.ErrNotFound) {
			left = err
			continue
		}
		if err != nil {
			return err
		}
		if _, err := p.o.Ports.Log.Publish(ctx, m); err != nil {
			if errors.Is(err, errcode.ErrTooLarge) {
				// No retry will succeed, and the following messages must not wait for ever.
				left = errcode.Errorf(errcode.TooLarge, "%s: left out %s: %w", p.o.Service, m.ID, err)
				continue
			}
			return errcode.Errorf(errcode.Of(err), "%s: publish %s: %w", p.o.Service, m.Subject, err)
		}
	}
	// The next save empties the outbox; a save only for that would double the cost of processing.
	e.published = true
	return left
}

// complete adds to a fact the parts that its document does not hold.
func (p *Processor[S]) complete(ctx context.Context, m broker.Message) (broker.Message, error) {
	if p.o.Complete == nil || events.EntityOfFact(m.Subject) == "" {
		return m, nil
	}
	e, err := cloudevent.Decode(m.Header, m.Data)
	if err != nil {
		return m, errcode.Errorf(errcode.Of(err), "%s: read %s again: %w", p.o.Service, m.ID, err)
	}
	if e.Body, err = p.o.Complete(ctx, e.Body); err != nil {
		return m, errcode.Errorf(errcode.Of(err), "%s: complete %s: %w", p.o.Service, m.ID, err)
	}
	whole, err := cloudevent.Encode(e)
	if err != nil {
		return m, err
	}
	if trace := m.Header[events.HeaderTrace]; trace != nil {
		whole.Header[events.HeaderTrace] = trace
	}
	return whole, nil
}

// publishNew publishes the launches of a decision. behind = older ones may be unpublished still, so
// not all up to here are known to be published.
func (p *Processor[S]) publishNew(ctx context.Context, e *entry[S], launches []events.Launch, olderUnpublished bool) error {
	if len(launches) == 0 {
		return nil
	}
	if err := p.publishLaunches(ctx, launches); err != nil {
		return err
	}
	if !olderUnpublished {
		e.launched = any(e.state).(LaunchSource).LaunchRevision()
	}
	return nil
}

// republishLaunches rebuilds launches that may be unpublished. They are stored in the order in
// which they are made, so the log is searched for the last one; if another one is missing
// nevertheless, the heartbeats of its node reveal it.
func (p *Processor[S]) republishLaunches(ctx context.Context, e *entry[S]) error {
	l, ok := any(e.state).(LaunchSource)
	if !ok || l.LaunchRevision() <= e.launched {
		return nil
	}
	if all := l.Launches(e.launched); len(all) > 0 {
		last, err := launchMessage(all[len(all)-1], "")
		if err != nil {
			return err
		}
		there, err := p.inLog(ctx, last, map[string]uint64{})
		if err != nil {
			return err
		}
		if !there {
			if err := p.publishLaunches(ctx, all); err != nil {
				return err
			}
		}
	}
	e.launched = l.LaunchRevision()
	return nil
}

func (p *Processor[S]) publishLaunches(ctx context.Context, launches []events.Launch) error {
	all := make([]broker.Message, len(launches))
	for i, l := range launches {
		l.Via = p.replica
		m, err := launchMessage(l, "")
		if err != nil {
			return err
		}
		all[i] = m
	}
	if err := p.o.Ports.Log.PublishAll(ctx, all); err != nil {
		return errcode.Errorf(errcode.Of(err), "%s: publish %s: %w", p.o.Service, english.Plural(len(all), "launch"), err)
	}
	return nil
}

// inLog reports whether the log holds this message or a later one of its kind.
func (p *Processor[S]) inLog(ctx context.Context, m broker.Message, newest map[string]uint64) (bool, error) {
	entity := events.EntityOfFact(m.Subject)
	family := events.Family(strings.Split(m.Subject, ".")[2])
	number, key := revisionOf(m.Data), m.Subject
	if entity != "" {
		number, key = numberOf(m.Header, m.Data), events.FamilySubject(family, entity)
	}
	last, ok := newest[key]
	if !ok {
		var err error
		if entity != "" {
			last, err = p.lastNumber(ctx, family, entity)
		} else {
			last, _, err = p.last(ctx, events.StreamLaunches, m.Subject, func(s broker.Stored) uint64 { return revisionOf(s.Data) })
		}
		if err != nil {
			return false, err
		}
		newest[key] = last
	}
	return number > 0 && last >= number, nil
}

// lastNumber returns the highest number of a family's facts about an entity ("*" = any); 0 = none.
func (p *Processor[S]) lastNumber(ctx context.Context, f events.Family, about string) (uint64, error) {
	number := func(s broker.Stored) uint64 { return numberOf(s.Header, s.Data) }
	newest, found, err := p.last(ctx, events.StreamFacts, events.FamilySubject(f, about), number)
	if err != nil || newest > 0 || !found {
		return newest, err
	}
	// The newest one is a refusal, which has no number; earlier ones may have one.
	highest := uint64(0)
	for _, row := range events.Catalog() {
		if row.Class != events.ClassFact || row.Type.Family() != f {
			continue
		}
		n, _, err := p.last(ctx, events.StreamFacts, events.FactSubject(row.Type, about), number)
		if err != nil {
			return 0, err
		}
		highest = max(highest, n)
	}
	return highest, nil
}

// last returns the order of the newest message on a subject, if there is one.
func (p *Processor[S]) last(ctx context.Context, stream, subject string, order func(broker.Stored) uint64) (n uint64, found bool, _ error) {
	s, err := p.o.Ports.Log.Last(ctx, stream, subject)
	switch {
	case errors.Is(err, errcode.ErrNotFound):
		return 0, false, nil
	case err != nil:
		return 0, false, errcode.Errorf(errcode.Of(err), "%s: last on %s: %w", p.o.Service, subject, err)
	}
	return order(s), true, nil
}

// numberOf returns the number of a stored fact; 0 = unnumbered or unreadable.
func numberOf(header map[string][]string, data []byte) uint64 {
	e, _ := cloudevent.Decode(header, data) // despite an error the decoded part of the envelope is used
	return e.Number
}

// revisionOf returns the revision of a stored launch; 0 = unreadable.
func revisionOf(data []byte) uint64 {
	var l struct {
		Revision uint64 `json:"revision"`
	}
	_ = json.Unmarshal(data, &l)
	return l.Revision
}
