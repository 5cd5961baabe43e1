package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
)

// ErrNoAnswer is the error of a command that no service has answered in time. It has expired and is
// not carried out any more.
var ErrNoAnswer = errNoAnswer

// Facts are where the answers to commands are looked for.
type Facts interface {
	// Newest returns the position of the newest fact: the answers to a command that is published
	// later follow it. 0 = there is none, or it is unknown.
	Newest(ctx context.Context) uint64
	// Follow calls fn with the facts after a position, and with those that come, until ctx or an
	// error of fn ends it. They are those of the subjects, and perhaps others.
	Follow(ctx context.Context, after uint64, subjects []string, fn func(events.Event) error) error
}

// Asker publishes commands and finds their answers.
type Asker struct {
	Ports  broker.Ports
	Facts  Facts
	Within time.Duration // for an answer
	// Retry is as the function Retry.
	Retry func(ctx context.Context, do func(context.Context) error) error
}

// Question is a command, and how its effect is recognised.
type Question struct {
	events.Event
	Subjects []string // of the facts that may answer it, refusals among them: see answersOf
	Answers  func(events.Body) bool
	// Holds reports whether what the command wants is so: some commands without effect cause no
	// fact. nil = only a fact counts.
	Holds func(context.Context) bool
	// Watch returns ErrStop as soon as what the command wants is so, or another error, which ends
	// the wait. nil = it is not known before the answer.
	Watch func(context.Context) error
	Again bool // the same event may have been published, and answered, before
}

// Ask publishes a command and waits for the fact that it has caused and that answers it; the zero
// event = what it wants is so without one. A refusal is the error, with the fact.
func (a Asker) Ask(outer context.Context, q Question) (answer events.Event, err error) {
	ctx, cancel := context.WithTimeoutCause(outer, a.Within, errNoAnswer)
	defer cancel()
	if q.Holds != nil && q.Holds(ctx) {
		return answer, nil
	}
	after := uint64(0)
	if !q.Again {
		after = a.Facts.Newest(ctx)
	}
	e, err := a.publish(ctx, q.Event)
	if err != nil {
		return answer, err
	}
	ctx, done := context.WithCancelCause(ctx)
	defer done(nil)
	var watching sync.WaitGroup
	if q.Watch != nil {
		watching.Go(func() { done(q.Watch(ctx)) })
	}
	var refusal error
	err = a.Facts.Follow(ctx, after, q.Subjects, func(f events.Event) error {
		refusal = refused(f.Body, e)
		if refusal == nil && (f.Cause != e.ID || !q.Answers(f.Body)) {
			return nil
		}
		answer = f
		return ErrStop
	})
	cause := context.Cause(ctx)
	done(nil)
	watching.Wait()
	switch {
	case errors.Is(err, ErrStop) || errors.Is(cause, ErrStop):
		return answer, refusal
	case cause == nil:
		return answer, err
	case !errors.Is(cause, errNoAnswer):
		return answer, cause
	}
	last, end := context.WithTimeout(outer, lastCheck)
	defer end()
	if q.Holds != nil && q.Holds(last) {
		return answer, nil
	}
	return answer, errNoAnswer
}

// lastCheck bounds the look for the last fact before a command, and the last check for the effect
// of one without a reply.
const lastCheck = time.Second

// publish stores a command that expires with ctx: a command that is reported as failed is not
// executed later. The expiry is by the store's clock, independent of the local one. It returns the
// stored event.
func (a Asker) publish(ctx context.Context, e events.Event) (events.Event, error) {
	err := a.Retry(ctx, func(ctx context.Context) error {
		if err := expire(ctx, a.Ports.Clock, &e.Expires); err != nil {
			return err
		}
		m, err := cloudevent.Encode(e)
		if err != nil {
			return err
		}
		_, err = a.Ports.Log.Publish(ctx, m)
		return err
	})
	return e, err
}

// expire sets the expiry of a command, unless it has one, to the deadline of ctx by the store's
// clock.
func expire(ctx context.Context, clock broker.Clock, at *time.Time) error {
	until, bounded := ctx.Deadline()
	if !bounded || !at.IsZero() {
		return nil
	}
	now, err := clock.Now(ctx)
	if err == nil {
		*at = now.Add(time.Until(until))
	}
	return err
}

// unknownEntity is the entity of a refusal when no job could be derived from the command.
const unknownEntity = "unknown"

// answersOf returns the subjects of the facts that may answer a command about jobs or nodes.
func answersOf[E ~string](family events.Family, refusal events.Body, entities ...E) []string {
	all := []string{events.FactSubject(refusal.Type(), unknownEntity)}
	for _, e := range entities {
		all = append(all, events.FamilySubject(family, string(e)))
	}
	return all
}

// refused returns the refusal of a command, if a fact is one.
func refused(b events.Body, e events.Event) error {
	of := func(command string, expired time.Time, code errcode.Code, reasons []spec.FieldError) error {
		if command != e.ID || !(expired.IsZero() || expired.Equal(e.Expires)) {
			return nil // of another command, or of an expired event with the same id
		}
		return errcode.RefuseAs(code, reasons)
	}
	switch r := b.(type) {
	case events.JobRejected:
		return of(r.Command, r.Expired, r.Code, r.Errors)
	case events.NodeRejected:
		return of(r.Command, r.Expired, r.Code, r.Errors)
	}
	return nil
}

// stream is the stream of facts.
type stream struct{ log broker.Log }

// Newest implements Facts.
func (s stream) Newest(ctx context.Context) uint64 {
	ctx, done := context.WithTimeout(ctx, lastCheck)
	defer done()
	last, err := s.log.Last(ctx, events.StreamFacts, events.AllFacts)
	if err != nil {
		return 0
	}
	return last.Sequence
}

// Follow implements Facts. Refusals of all clients may share a subject, so that reading them from
// the first could take long.
func (s stream) Follow(ctx context.Context, after uint64, subjects []string, fn func(events.Event) error) error {
	at := broker.Follow{Stream: events.StreamFacts, Start: broker.FromSequence, Sequence: after + 1, Subjects: subjects}
	return s.log.Follow(ctx, at, func(m broker.Stored) error {
		f, err := cloudevent.DecodeStored(m)
		if err != nil {
			return nil //nolint:nilerr // of a newer version; not the answer to this command
		}
		return fn(f)
	}, nil)
}
