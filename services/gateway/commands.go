package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/services/cluster"
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

// sourceOf returns the source of the commands that the gateway makes of a caller's requests.
func sourceOf(who tokens.Principal) string {
	if who == tokens.Owner {
		return "/client/gateway"
	}
	return "/client/gateway/" + who.Name
}

// commands publishes commands and finds their answers among the facts of the feed.
type commands struct {
	cluster.Asker
	feed  *feed.Feed
	now   func() time.Time
	spans func(events.Span) // must not block
}

// span begins the span of a command: in the trace of the client, which is that of the context, or
// in a trace of its own.
func (c commands) span(ctx context.Context, b events.Body, entity string) events.Span {
	s := events.Span{
		Service: events.ServiceGateway, Name: fmt.Sprintf("command %s.%s", b.Type().Family(), b.Type().Kind()), Start: c.now(),
		Parent: tracing.FromContext(ctx), Attributes: map[string]string{},
	}
	if s.Parent == "" {
		s.Self = tracing.CommandTrace(rand.Text())
	} else {
		s.Self = tracing.Child(s.Parent, "command", rand.Text())
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
		s.Links = []string{tracing.JobTrace(j.Job)}
	}
	c.spans(s)
}

// ask publishes a command and waits for the fact that answers it. Some commands without effect
// cause no fact: holds reports whether what they want is so; nil = only a fact counts. A refusal is
// the error, and so is the lack of an answer: then the command has expired and is not carried out
// any more. When it returns, the views show what the fact says.
func (c commands) ask(ctx context.Context, id, entity string, b events.Body, answers func(events.Body) bool, holds func() bool) (answer events.Body, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Within)
	defer cancel()
	if holds != nil && holds() {
		return nil, nil
	}
	span := c.span(ctx, b, entity)
	defer func() { c.answered(span, answer, err) }()
	q := cluster.Question{
		Event:   events.Event{ID: cmp.Or(id, ulid.Make().String()), Source: sourceOf(asker(ctx)), Entity: entity, Time: c.now(), Trace: span.Self, Body: b},
		Answers: answers,
	}
	if holds != nil {
		q.Watch = func(ctx context.Context) error { return cmp.Or(c.feed.Until(ctx, holds), cluster.ErrStop) }
	}
	found, err := c.Ask(ctx, q)
	switch {
	case err != nil && found.Body != nil: // refused
		return nil, err
	case err != nil:
		return nil, c.unanswered(ctx, err)
	case found.Body == nil:
		return nil, nil
	}
	if c.feed.Until(ctx, func() bool { return c.feed.Shows(found) }) != nil {
		return nil, errcode.Errorf(errcode.Unavailable, "the command was carried out, but this gateway has not read the new state within %s: read it again", c.Within)
	}
	return found.Body, nil
}

// change carries out a change; view returns the present view of what it is about.
func change[V any](ctx context.Context, c commands, ch cluster.Change[V], view func() V) error {
	var holds func() bool
	if ch.Holds != nil {
		holds = func() bool { return ch.Holds(view()) }
	}
	_, err := c.ask(ctx, "", ch.Entity, ch.Body, ch.Answers, holds)
	return err
}

func (c commands) unanswered(ctx context.Context, err error) error {
	if errors.Is(err, cluster.ErrNoAnswer) && ctx.Err() != nil {
		err = ctx.Err()
	}
	if code := errcode.Of(err); code != errcode.Unavailable && code != errcode.Cancelled {
		return err
	}
	return errcode.Errorf(errcode.Unavailable, "no service has answered within %s: do they run? The command has expired and is not carried out any more (%v)", c.Within, err)
}

// store stores an event as it is. It is tried again while the brokers elect a leader.
func (c commands) store(ctx context.Context, e events.Event) error {
	m, err := cloudevent.Encode(e)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Within)
	defer cancel()
	err = cluster.Retry(ctx, func(ctx context.Context) error {
		_, err := c.Ports.Log.Publish(ctx, m)
		return err
	})
	if errcode.Of(err) == errcode.Unavailable || errors.Is(err, cluster.ErrNoAnswer) {
		return errcode.Errorf(errcode.Unavailable, "the event could not be stored within %s: does the broker run? (%v)", c.Within, err)
	}
	return err
}
