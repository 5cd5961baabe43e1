package controller

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tracing"
)

// Item is an input of a Core, or a change of its bucket.
type Item struct {
	input  events.Input
	settle func(InputResult, error) // called once; nil = no sender waits for the result
	update *update
	listed bool // all keys present at the start of the watch have been offered
}

type update struct {
	key      string
	value    []byte
	revision uint64
}

// cancel settles an item that will not be processed.
func (i Item) cancel(service string) {
	if i.settle != nil {
		i.settle(InputResult{}, errcode.Errorf(errcode.Unavailable, "%s is stopping", service))
	}
}

// InputItem returns an item without a result.
func InputItem(in events.Input) Item { return Item{input: in} }

// RequestItem returns an item whose result is passed to settle, once.
func RequestItem(in events.Input, settle func(InputResult, error)) Item {
	return Item{input: in, settle: settle}
}

// UpdateItem returns a change from the watch of the bucket; value nil = removed.
func UpdateItem(key string, value []byte, revision uint64) Item {
	return Item{update: &update{key, value, revision}}
}

// SyncedItem returns the mark of the end of a watch's initial list.
func SyncedItem() Item { return Item{listed: true} }

// batch groups inputs by the entities that they concern, in the order of arrival.
type batch struct {
	order []string
	parts map[string][]*part
}

// part is one input of a batch, settled once all entities that it concerns have answered.
type part struct {
	input  events.Input
	settle func(InputResult, error) // may be nil
	left   int
	result InputResult
	err    error
}

// add adds an input for these entities. With none it is settled at once as unrouted.
func (b *batch) add(in events.Input, entities []string, settle func(InputResult, error)) {
	p := &part{input: in, left: len(entities), settle: settle}
	if len(entities) == 0 {
		p.done(InputResult{}, errUnrouted)
	}
	for _, e := range entities {
		if b.parts[e] == nil {
			if b.parts == nil {
				b.parts = map[string][]*part{}
			}
			b.order = append(b.order, e)
		}
		b.parts[e] = append(b.parts[e], p)
	}
}

func inputsOf(parts []*part) []events.Input {
	in := make([]events.Input, len(parts))
	for i, p := range parts {
		in[i] = p.input
	}
	return in
}

// settle passes the result of an entity's inputs to the parts.
func settle(parts []*part, out Result, err error) {
	for i, p := range parts {
		if err != nil {
			p.done(InputResult{}, err)
		} else {
			p.done(out.Inputs[i], nil)
		}
	}
}

func (p *part) done(r InputResult, err error) {
	if p.result.Reply == nil {
		p.result.Reply = r.Reply
	}
	p.result.Refusal, p.err = cmp.Or(p.result.Refusal, r.Refusal), cmp.Or(p.err, err)
	p.result.Facts += r.Facts
	if p.left--; p.left <= 0 && p.settle != nil {
		p.settle(p.result, p.err)
	}
}

// DeliveryItem returns the item of a message from one of the consumers. The result settles the
// delivery. A message that is no valid input is settled here, and ok is false. Several goroutines
// may call it.
func (c *Core[S]) DeliveryItem(ctx context.Context, from broker.Consumer, d broker.Delivery) (_ Item, ok bool) {
	e, err := cloudevent.DecodeStored(d.Stored)
	if err != nil {
		c.malformed(ctx, from, d, e, err)
		return Item{}, false
	}
	in := events.Input{ID: e.ID, Source: e.Source, Number: e.Number, Time: e.Time, Stored: d.Stored.Time, Trace: cmp.Or(traceOf(d.Header), e.Trace), Body: e.Body}
	if in.Expired, err = c.expired(ctx, e.Expires); err != nil {
		d.Retry(retryAfter)
		return Item{}, false
	}
	return Item{input: in, settle: func(r InputResult, err error) { c.settleDelivery(ctx, from, d, e, r, err) }}, true
}

// settleDelivery acknowledges, retries or drops a message by the result of its input.
func (c *Core[S]) settleDelivery(ctx context.Context, from broker.Consumer, d broker.Delivery, e events.Event, r InputResult, err error) {
	command := from.Stream == events.StreamCommands
	switch {
	case errors.Is(err, errUnrouted) && !command: // a fact that concerns no entity here
		d.Ack()
	case errors.Is(err, errUnrouted):
		c.o.Observe(Observation{Service: c.o.Service, Entity: e.Entity, Trace: cmp.Or(traceOf(d.Header), e.Trace), Refusal: err})
		c.refuse(ctx, d, e, err)
	case err == nil && command && errcode.Of(r.Refusal) == errcode.Conflict:
		d.Retry(0) // it was routed by an outdated state
	case err == nil && command && r.Refusal != nil && r.Facts == 0:
		c.refuse(ctx, d, e, r.Refusal)
	case err == nil:
		d.Ack()
	case errcode.Of(err) == errcode.Newer:
		d.Retry(newerAfter)
	case permanent(err) && d.Attempt >= maxDeliveries:
		d.Drop(err.Error())
	default:
		d.Retry(retryAfter)
	}
}

// errLate refuses a command that has expired: its client has already reported that it failed.
var errLate = errcode.Errorf(errcode.Unavailable, "the command has expired: it came to the service too late to be carried out; give it again")

// Expired returns when a command expired that was refused for that reason, or zero if it was
// refused for another one.
func Expired(e events.Event, why error) time.Time {
	if errors.Is(why, errLate) {
		return e.Expires
	}
	return time.Time{}
}

// expired compares a time with the clock of the broker, from which the client computed the expiry.
func (c *Core[S]) expired(ctx context.Context, expires time.Time) (bool, error) {
	if expires.IsZero() {
		return false, nil
	}
	now, err := c.o.Ports.Clock.Now(ctx)
	return now.After(expires), err
}

// malformed settles a message that cannot be decoded. An unknown type may be from a newer version,
// whose replicas get a chance to process it.
func (c *Core[S]) malformed(ctx context.Context, from broker.Consumer, d broker.Delivery, e events.Event, err error) {
	command := from.Stream == events.StreamCommands
	switch {
	case errors.Is(err, events.ErrUnknownType) && !command && d.Attempt < maxDeliveries:
		d.Retry(newerAfter)
	case command:
		c.o.Observe(Observation{Service: c.o.Service, Entity: e.Entity, Trace: cmp.Or(traceOf(d.Header), e.Trace), Refusal: err})
		c.refuse(ctx, d, e, err)
	default:
		c.o.failed(e.Entity, cmp.Or(traceOf(d.Header), e.Trace), errcode.Errorf(errcode.Of(err), "dropped a message on %s: %w", d.Subject, err))
		d.Drop(err.Error())
	}
}

// refuse publishes why a command was refused, and drops it, because it would be refused again.
func (c *Core[S]) refuse(ctx context.Context, d broker.Delivery, e events.Event, why error) {
	if c.o.Reject != nil {
		if f, ok := c.o.Reject(e, why); ok {
			if err := c.reject(ctx, d, e, f); err != nil {
				c.o.failed(f.Entity, cmp.Or(traceOf(d.Header), e.Trace), err)
				d.Retry(retryAfter)
				return
			}
		}
	}
	d.Drop(why.Error())
}

// reject publishes the fact of a refusal. It has no number, because no document was changed. Its id
// is derived from the command's, so that a repeated command publishes it once.
func (c *Core[S]) reject(ctx context.Context, d broker.Delivery, e events.Event, f events.Fact) error {
	ev := events.Event{
		ID:     c.o.Service + "-rejected-" + ident.Token(e.Source, e.ID+expiry(e), string(d.Data))[:16],
		Source: events.ServiceSource(c.o.Service),
		Entity: cmp.Or(f.Entity, "unknown"),
		Time:   c.o.Now(),
		Cause:  cmp.Or(f.Cause, e.ID),
		Trace:  cmp.Or(f.Trace, traceOf(d.Header), e.Trace),
		Body:   f.Body,
	}
	m, err := cloudevent.Encode(ev)
	if err != nil { // what was decoded of a malformed envelope may be invalid in the fact
		ev.Entity, ev.Cause, ev.Trace = "unknown", "", ""
		if m, err = cloudevent.Encode(ev); err != nil {
			return err
		}
	}
	if _, err := c.o.Ports.Log.Publish(ctx, m); err != nil {
		return errcode.Errorf(errcode.Of(err), "%s: publish a rejection: %w", c.o.Service, err)
	}
	c.o.Observe(Observation{Service: c.o.Service, Entity: ev.Entity, Trace: ev.Trace, Fact: &ev})
	return nil
}

// expiry distinguishes a command that is published again after it has expired.
func expiry(e events.Event) string {
	if e.Expires.IsZero() {
		return ""
	}
	return "|" + e.Expires.String()
}

func traceOf(header map[string][]string) string {
	if v := header[events.HeaderTrace]; len(v) > 0 && tracing.Valid(v[0]) {
		return v[0]
	}
	return ""
}
