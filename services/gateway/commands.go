package gateway

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/gateway/feed"
	"github.com/regroup-io/regroup/services/gateway/tokens"
)

// askerKey is that of the principal in the context of a request.
type askerKey struct{}

// asker returns who makes the request of a context.
func asker(ctx context.Context) tokens.Principal {
	who, _ := ctx.Value(askerKey{}).(tokens.Principal) // routes sets it
	return who
}

// sourceOf returns the source of the commands that the gateway makes of the requests of somebody.
func sourceOf(who tokens.Principal) string {
	if who == tokens.Owner {
		return "/client/gateway"
	}
	return "/client/gateway/" + who.Name
}

// commands publishes commands and finds their answers among the facts.
type commands struct {
	ports events.Ports
	feed  *feed.Feed
	now   func() time.Time
	spans func(events.Span) // must not block

	within time.Duration // for an answer
}

// store publishes a command. It is tried again while the brokers elect a leader.
func (c commands) store(ctx context.Context, e events.Event) error {
	m, err := cloudevent.Encode(e)
	if err != nil {
		return err
	}
	back := wait.Backoff{First: 50 * time.Millisecond, Max: time.Second}
	for {
		_, err := c.ports.Log.Publish(ctx, m)
		if err == nil || events.CodeOf(err) != events.Unavailable || !back.Sleep(ctx) {
			return err
		}
	}
}

// span begins the span of a command: in the trace of the client, which is that of the context, or
// in a trace of its own.
func (c commands) span(ctx context.Context, b events.Body, entity string) events.Span {
	s := events.Span{
		Service: events.ServiceGateway, Name: fmt.Sprintf("command %s.%s", b.Type().Family(), b.Type().Kind()), Start: c.now(),
		Parent: events.TraceFrom(ctx), Attributes: map[string]string{},
	}
	if s.Parent == "" {
		s.Self = events.CommandTrace(rand.Text())
	} else {
		s.Self = events.ChildTrace(s.Parent, "command", rand.Text())
	}
	if entity != "" {
		s.Attributes["regroup.entity"] = entity
	}
	return s
}

// answered records the span of a command. That of a submission leads to the start of the job.
func (c commands) answered(s events.Span, answer events.Body, err error) {
	s.End = c.now()
	if err != nil {
		s.Error = err.Error()
	}
	if j, ok := answer.(events.JobSubmitted); ok {
		s.Attributes["regroup.job.id"] = string(j.Job)
		s.Links = []string{events.JobTrace(j.Job)}
	}
	c.spans(s)
}

// ask publishes a command and waits for the fact that answers it. Some commands without effect
// cause no fact: satisfied reports whether what they want holds; nil = only a fact counts. A
// refusal is the error, and so is the lack of an answer: then the command has expired and is not
// carried out any more. When it returns, the views show what the fact says.
func (c commands) ask(ctx context.Context, id, entity string, b events.Body, answers func(events.Body) bool, satisfied func() bool) (answer events.Body, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	if satisfied != nil && satisfied() {
		return nil, nil
	}
	span := c.span(ctx, b, entity)
	defer func() { c.answered(span, answer, err) }()
	e := events.Event{ID: id, Source: sourceOf(asker(ctx)), Entity: entity, Time: c.now(), Trace: span.Self, Body: b}
	if e.ID == "" {
		e.ID = ulid.Make().String()
	}
	broker, err := c.ports.Clock.Now(ctx)
	if err != nil {
		return nil, c.unanswered(err)
	}
	if until, bounded := ctx.Deadline(); bounded {
		e.Expires = broker.Add(time.Until(until))
	}
	at, live := c.feed.Facts.Last(), c.feed.Live.Last()
	if err := c.store(ctx, e); err != nil {
		return nil, c.unanswered(err)
	}
	var found *events.Event
	for {
		facts, more := c.feed.Facts.After(at, batch)
		for _, i := range facts {
			at = i.Sequence
			if refusal := refused(i.Event.Body, e); refusal != nil {
				return nil, refusal
			}
			if found == nil && i.Event.Cause == e.ID && answers(i.Event.Body) {
				found = &i.Event
			}
		}
		changes, changed := c.feed.Live.After(live, batch)
		for _, i := range changes {
			live = i.Sequence
		}
		switch {
		case found != nil && c.feed.Shows(*found):
			return found.Body, nil
		case found == nil && satisfied != nil && len(changes) > 0 && satisfied():
			return nil, nil
		}
		if len(facts) > 0 || len(changes) > 0 {
			continue
		}
		select {
		case <-more:
		case <-changed:
		case <-ctx.Done():
			if found != nil {
				return nil, events.Errorf(events.Unavailable, "the command was carried out, but this gateway has not read the new state within %s: read it again", c.within)
			}
			return nil, c.unanswered(ctx.Err())
		}
	}
}

// batch is how many items of a ring are read at once.
const batch = 256

func (c commands) unanswered(err error) error {
	if code := events.CodeOf(err); code != events.Unavailable && code != events.Cancelled {
		return err
	}
	return events.Errorf(events.Unavailable, "no service has answered within %s: do they run? The command has expired and is not carried out any more (%v)", c.within, err)
}

// refused returns the refusal of a command, if a fact is one.
func refused(b events.Body, e events.Event) error {
	of := func(command string, expired time.Time, code events.Code, reasons []spec.FieldError) error {
		if command != e.ID || !(expired.IsZero() || expired.Equal(e.Expires)) {
			return nil // of another command, or of an expired event with the same id
		}
		return events.RefuseAs(code, reasons)
	}
	switch r := b.(type) {
	case events.JobRejected:
		return of(r.Command, r.Expired, r.Code, r.Errors)
	case events.NodeRejected:
		return of(r.Command, r.Expired, r.Code, r.Errors)
	}
	return nil
}

// storeWithin is store with a bound for the time.
func (c commands) storeWithin(ctx context.Context, e events.Event) error {
	ctx, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	err := c.store(ctx, e)
	if code := events.CodeOf(err); code == events.Unavailable || code == events.Cancelled {
		return events.Errorf(events.Unavailable, "the event could not be stored within %s: does the broker run? (%v)", c.within, err)
	}
	return err
}
