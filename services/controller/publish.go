package controller

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
)

// Tell tells what waits in the entity's outbox, unless the log has it already. It is no error if nothing waits.
func (t *Processor[S]) Tell(ctx context.Context, entity string) error {
	e := t.known(entity)
	if e == nil || e.broken != nil {
		return nil //nolint:nilerr // a document that cannot be read has nothing that we could tell
	}
	if err := t.tell(ctx, e, true); err != nil {
		return err
	}
	return t.tellLaunches(ctx, e)
}

// tell publishes the outbox in order. doubt = another replica or an earlier try may have told some of it: the broker
// drops repeats for some minutes only, so what the log's newest message covers is left out.
func (t *Processor[S]) tell(ctx context.Context, e *entry[S], doubt bool) error {
	if e.told {
		return nil
	}
	newest := map[string]uint64{}
	var left error
	for _, m := range e.doc.Outbox {
		if doubt {
			there, err := t.there(ctx, m, newest)
			if err != nil {
				return err
			}
			if there {
				continue
			}
		}
		m, err := t.complete(ctx, m)
		if errors.Is(err, events.ErrNotFound) {
			left = err
			continue
		}
		if err != nil {
			return err
		}
		if _, err := t.o.Ports.Log.Publish(ctx, m); err != nil {
			if errors.Is(err, events.ErrTooLarge) {
				// No try will ever succeed, and what comes after it must not wait for ever.
				left = events.Errorf(events.TooLarge, "%s: left out %s: %w", t.o.Service, m.ID, err)
				continue
			}
			return events.Errorf(events.CodeOf(err), "%s: tell %s: %w", t.o.Service, m.Subject, err)
		}
	}
	// The outbox itself is emptied with the next save; a save for nothing else would double the cost of every turn.
	e.told = true
	return left
}

// complete adds to a fact what its document does not hold.
func (t *Processor[S]) complete(ctx context.Context, m events.Message) (events.Message, error) {
	if t.o.Complete == nil || events.EntityOfFact(m.Subject) == "" {
		return m, nil
	}
	e, err := cloudevent.Decode(m.Header, m.Data)
	if err != nil {
		return m, events.Errorf(events.CodeOf(err), "%s: read %s again: %w", t.o.Service, m.ID, err)
	}
	if e.Body, err = t.o.Complete(ctx, e.Body); err != nil {
		return m, events.Errorf(events.CodeOf(err), "%s: complete %s: %w", t.o.Service, m.ID, err)
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

// launch publishes what a turn has decided. late = older ones may be untold still, so nothing is known to be told up to here.
func (t *Processor[S]) launch(ctx context.Context, e *entry[S], launches []events.Launch, late bool) error {
	if len(launches) == 0 {
		return nil
	}
	if err := t.publish(ctx, launches); err != nil {
		return err
	}
	if !late {
		e.launched = any(e.state).(LaunchSource).Launched()
	}
	return nil
}

// tellLaunches makes again what may not have been told. It is stored in the order in which it is made, so the last one is
// looked for; where another is missing all the same, its node's heartbeats ask for it.
func (t *Processor[S]) tellLaunches(ctx context.Context, e *entry[S]) error {
	l, ok := any(e.state).(LaunchSource)
	if !ok || l.Launched() <= e.launched {
		return nil
	}
	if all := l.Launches(e.launched); len(all) > 0 {
		last, err := launchMessage(all[len(all)-1], "")
		if err != nil {
			return err
		}
		there, err := t.there(ctx, last, map[string]uint64{})
		if err != nil {
			return err
		}
		if !there {
			if err := t.publish(ctx, all); err != nil {
				return err
			}
		}
	}
	e.launched = l.Launched()
	return nil
}

func (t *Processor[S]) publish(ctx context.Context, launches []events.Launch) error {
	all := make([]events.Message, len(launches))
	for i, l := range launches {
		l.Via = t.o.Replica
		m, err := launchMessage(l, "")
		if err != nil {
			return err
		}
		all[i] = m
	}
	if err := t.o.Ports.Log.PublishAll(ctx, all); err != nil {
		return events.Errorf(events.CodeOf(err), "%s: tell %d launches: %w", t.o.Service, len(all), err)
	}
	return nil
}

// there tells whether the log holds this message or a later one of its kind.
func (t *Processor[S]) there(ctx context.Context, m events.Message, newest map[string]uint64) (bool, error) {
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
			last, err = t.lastNumber(ctx, family, entity)
		} else {
			last, _, err = t.last(ctx, events.StreamLaunches, m.Subject, func(s events.Stored) uint64 { return revisionOf(s.Data) })
		}
		if err != nil {
			return false, err
		}
		newest[key] = last
	}
	return number > 0 && last >= number, nil
}

// lastNumber returns the highest number among the stored facts of a family about an entity ("*" = any); 0 = none.
func (t *Processor[S]) lastNumber(ctx context.Context, f events.Family, about string) (uint64, error) {
	number := func(s events.Stored) uint64 { return numberOf(s.Header, s.Data) }
	newest, found, err := t.last(ctx, events.StreamFacts, events.FamilySubject(f, about), number)
	if err != nil || newest > 0 || !found {
		return newest, err
	}
	// The newest one is a refusal, which has no number; those before it may have.
	highest := uint64(0)
	for _, row := range events.Catalog() {
		if row.Class != events.ClassFact || row.Type.Family() != f {
			continue
		}
		n, _, err := t.last(ctx, events.StreamFacts, events.FactSubject(row.Type, about), number)
		if err != nil {
			return 0, err
		}
		highest = max(highest, n)
	}
	return highest, nil
}

// last reads the order of the newest message on a subject, if there is one.
func (t *Processor[S]) last(ctx context.Context, stream, subject string, order func(events.Stored) uint64) (n uint64, found bool, _ error) {
	s, err := t.o.Ports.Log.Last(ctx, stream, subject)
	switch {
	case errors.Is(err, events.ErrNotFound):
		return 0, false, nil
	case err != nil:
		return 0, false, events.Errorf(events.CodeOf(err), "%s: last on %s: %w", t.o.Service, subject, err)
	}
	return order(s), true, nil
}

// numberOf reads the number of a stored fact; 0 = unnumbered or unreadable.
func numberOf(header map[string][]string, data []byte) uint64 {
	e, _ := cloudevent.Decode(header, data) // with an error the envelope counts, as far as it was read
	return e.Number
}

// revisionOf reads the revision of a stored launch; 0 = unreadable.
func revisionOf(data []byte) uint64 {
	var l struct {
		Revision uint64 `json:"revision"`
	}
	_ = json.Unmarshal(data, &l)
	return l.Revision
}
