package controller

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
)

// arrival is one thing for the goroutine that owns the turns.
type arrival struct {
	input  events.Input
	settle func(InputResult, error) // called once by the owner; nil = nobody waits
	change *change                  // of the bucket
	listed bool                     // the bucket's present keys have all arrived
}

type change struct {
	key      string
	value    []byte
	revision uint64
}

// put hands an arrival to the owner; false = the host is stopping.
func (h *Host[S]) put(ctx context.Context, a arrival) bool {
	select {
	case h.inbox <- a:
		return true
	case <-ctx.Done():
		return false
	}
}

// newerAfter is when a replica of a newer version should have taken what this one cannot.
const newerAfter = 5 * time.Second

// delivered takes in a fact or a command.
func (h *Host[S]) delivered(ctx context.Context, c events.Consumer, d events.Delivery) {
	e, err := cloudevent.Decode(d.Header, d.Data)
	if err != nil {
		h.malformed(ctx, c, d, e, err)
		return
	}
	in := events.Input{ID: e.ID, Source: e.Source, Number: e.Number, Time: e.Time, Trace: cmp.Or(trace(d.Header), e.Trace), Body: e.Body}
	if in.Expired, err = h.late(ctx, e); err != nil {
		d.Retry(RetryAfter)
		return
	}
	ok := h.put(ctx, arrival{input: in, settle: func(a InputResult, err error) {
		switch code := events.CodeOf(err); {
		case errors.Is(err, ErrUnrouted) && c.Stream != events.StreamCommands: // a fact of no concern
			d.Ack()
		case errors.Is(err, ErrUnrouted):
			h.o.Observe(Observation{Service: h.o.Service, Entity: e.Entity, Refusal: err})
			h.refuse(ctx, d, e, err)
		case err == nil && events.CodeOf(a.Refusal) == events.Conflict && c.Stream == events.StreamCommands:
			d.Retry(0) // it was routed by what is out of date now
		case err == nil && a.Refusal != nil && a.Facts == 0 && c.Stream == events.StreamCommands:
			h.refuse(ctx, d, e, a.Refusal)
		case err == nil:
			d.Ack()
		case code == events.Newer:
			d.Retry(newerAfter)
		case code == events.Internal || code == events.Invalid || code == events.TooLarge:
			if d.Attempt >= MaxAttempt {
				d.Drop(err.Error())
				return
			}
			d.Retry(RetryAfter)
		default:
			d.Retry(RetryAfter)
		}
	}})
	if !ok {
		d.Retry(0)
	}
}

// errLate refuses a command that nobody waits for any more: who gave it was told that it had failed.
var errLate = events.Errorf(events.Unavailable, "the command has expired: it came to the service too late to be carried out; give it again")

// Expired is when a command expired that was refused because of it; zero = that was not the reason.
func Expired(e events.Event, why error) time.Time {
	if errors.Is(why, errLate) {
		return e.Expires
	}
	return time.Time{}
}

// late tells whether a command has expired, by the clock of the store alone: it gave the client the time from which the expiry was made.
func (h *Host[S]) late(ctx context.Context, e events.Event) (bool, error) {
	return h.past(ctx, e.Expires)
}

func (h *Host[S]) past(ctx context.Context, expires time.Time) (bool, error) {
	if expires.IsZero() {
		return false, nil
	}
	now, err := h.o.Ports.Clock.Now(ctx)
	return now.After(expires), err
}

// expiring is a request that must not be carried out after a time by the clock of the store; zero = always.
type expiring interface{ Expiry() time.Time }

// malformed settles a message that cannot be read. An unknown type may be of a newer version, whose replicas are given a
// chance to take it.
func (h *Host[S]) malformed(ctx context.Context, c events.Consumer, d events.Delivery, e events.Event, err error) {
	if errors.Is(err, events.ErrUnknownType) && c.Stream != events.StreamCommands && d.Attempt < MaxAttempt {
		d.Retry(newerAfter)
		return
	}
	if c.Stream == events.StreamCommands {
		h.o.Observe(Observation{Service: h.o.Service, Entity: e.Entity, Refusal: err})
		h.refuse(ctx, d, e, err)
		return
	}
	h.o.Observe(Observation{Service: h.o.Service, Entity: e.Entity, Err: events.Errorf(events.CodeOf(err), "dropped a message on %s: %w", d.Subject, err)})
	d.Drop(err.Error())
}

// refuse tells why a command was refused and drops it: it would be refused for ever.
func (h *Host[S]) refuse(ctx context.Context, d events.Delivery, e events.Event, why error) {
	if h.o.Reject != nil {
		if f, ok := h.o.Reject(e, why); ok {
			if err := h.reject(ctx, d, e, f); err != nil {
				h.o.Observe(Observation{Service: h.o.Service, Entity: f.Entity, Err: err})
				d.Retry(RetryAfter)
				return
			}
		}
	}
	d.Drop(why.Error())
}

// reject tells the fact of a refusal. It is unnumbered, because no document was changed; its id is made from the
// command's, so that a repeat tells it once.
func (h *Host[S]) reject(ctx context.Context, d events.Delivery, e events.Event, f events.Fact) error {
	ev := events.Event{
		ID:     h.o.Service + "-rejected-" + events.Token(e.Source, e.ID+expiry(e), string(d.Data))[:16],
		Source: source(h.o.Service),
		Entity: cmp.Or(f.Entity, "unknown"),
		Time:   h.o.Now(),
		Cause:  cmp.Or(f.Cause, e.ID),
		Trace:  cmp.Or(f.Trace, trace(d.Header), e.Trace),
		Body:   f.Body,
	}
	m, err := cloudevent.Encode(ev)
	if err != nil { // what could be read of the envelope may not fit into ours
		ev.Entity, ev.Cause, ev.Trace = "unknown", "", ""
		if m, err = cloudevent.Encode(ev); err != nil {
			return err
		}
	}
	if _, err := h.o.Ports.Log.Publish(ctx, m); err != nil {
		return events.Errorf(events.CodeOf(err), "%s: tell a rejection: %w", h.o.Service, err)
	}
	h.o.Observe(Observation{Service: h.o.Service, Entity: ev.Entity, Fact: &ev})
	return nil
}

// expiry tells apart what is given again after it has expired.
func expiry(e events.Event) string {
	if e.Expires.IsZero() {
		return ""
	}
	return "|" + e.Expires.String()
}

// asked answers a request.
func (h *Host[S]) asked(host, call context.Context, r Request, data []byte) ([]byte, error) {
	body, err := r.Decode(data)
	if err != nil {
		return nil, err
	}
	if x, ok := body.(expiring); ok { // it may have waited in a socket while this process was stopped
		if late, err := h.past(call, x.Expiry()); late || err != nil {
			return nil, cmp.Or(err, errLate)
		}
	}
	type answer struct {
		InputResult
		err error
	}
	answered := make(chan answer, 1)
	a := arrival{
		input:  events.Input{Trace: events.TraceFrom(call), Body: body},
		settle: func(a InputResult, err error) { answered <- answer{a, err} },
	}
	stopping := events.Errorf(events.Unavailable, "%s is stopping: ask again", h.o.Service)
	select {
	case h.inbox <- a:
	case <-call.Done():
		return nil, context.Cause(call)
	case <-host.Done():
		return nil, stopping
	}
	select {
	case got := <-answered:
		switch {
		case got.err != nil:
			return nil, got.err
		case got.Refusal != nil:
			return nil, got.Refusal
		case got.Reply == nil:
			return []byte("{}"), nil
		}
		return events.EncodeBody(got.Reply)
	case <-call.Done():
		return nil, context.Cause(call)
	case <-host.Done():
		return nil, stopping
	}
}

// heard takes in a signal. When the host cannot keep up it is lost, which signals may be.
func (h *Host[S]) heard(s Subscription, data []byte) {
	body, err := s.Decode(data)
	if err != nil {
		h.o.Observe(Observation{Service: h.o.Service, Err: events.Errorf(events.Invalid, "signal on %s: %w", s.Subject, err)})
		return
	}
	select {
	case h.inbox <- arrival{input: events.Input{Time: h.o.Now(), Body: body}}:
	default:
	}
}

func trace(header map[string][]string) string {
	if v := header[events.HeaderTrace]; len(v) > 0 {
		return v[0]
	}
	return ""
}
