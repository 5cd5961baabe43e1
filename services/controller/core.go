package controller

import (
	"context"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
)

// Core is a controller that is stepped by its caller. Inputs are passed to Offer; Step processes
// them and fires the timers that are due; Next returns when to call Step again. One goroutine at a
// time may use it.
type Core[S any] struct {
	o         Options[S]
	processor *Processor[S]
	queue     []Item
	timers    timers
	restUntil time.Time
	refusals  map[string]string // last refusal per entity: only changed ones are observed
	synced    bool
}

// NewCore checks the options. It does no I/O.
func NewCore[S any](o Options[S]) (*Core[S], error) {
	o = o.withDefaults()
	if o.Route == nil {
		return nil, errcode.Errorf(errcode.Invalid, "controller %s: no Route", o.Service)
	}
	p, err := NewProcessor(o)
	if err != nil {
		return nil, err
	}
	p.replica = o.NewID()
	return &Core[S]{o: o, processor: p, timers: timers{at: map[timerKey]time.Time{}}, refusals: map[string]string{}}, nil
}

// Offer queues an item for the next Step. A running Step may call it.
func (c *Core[S]) Offer(i Item) { c.queue = append(c.queue, i) }

// Queued returns how many items wait for a Step.
func (c *Core[S]) Queued() int { return len(c.queue) }

// HasSynced reports whether the initial list of documents, which Route needs, has been processed.
func (c *Core[S]) HasSynced() bool { return c.synced }

// Next returns when Step has work to do, perhaps in the past; zero = not before the next Offer.
func (c *Core[S]) Next() time.Time {
	at, ok := c.timers.next()
	if len(c.queue) > 0 && (!ok || c.restUntil.Before(at)) {
		at = c.restUntil
		if at.IsZero() {
			at = c.o.Now()
		}
	}
	return at
}

// Step processes one batch, unless the core rests after a long one, and fires the timers due.
func (c *Core[S]) Step(ctx context.Context) {
	if !c.o.Now().Before(c.restUntil) {
		c.process(ctx, c.takeBatch())
	}
	c.fire(ctx)
}

// takeBatch removes the next batch, of at most as many inputs as the ring of a document.
func (c *Core[S]) takeBatch() []Item {
	n, ids := 0, 0
	for ; n < min(len(c.queue), batchSize) && ids < ringSize; n++ {
		if c.queue[n].input.ID != "" {
			ids++
		}
	}
	batch := c.queue[:n:n]
	if c.queue = c.queue[n:]; len(c.queue) == 0 {
		c.queue = nil
	}
	return batch
}

// Drain settles the items that were not processed when the service stops.
func (c *Core[S]) Drain() {
	for _, i := range c.queue {
		i.cancel(c.o.Service)
	}
	c.queue = nil
}

// process routes a batch and gives each entity all its inputs together, in the order of arrival.
func (c *Core[S]) process(ctx context.Context, items []Item) {
	var b batch
	for _, i := range items {
		switch {
		case i.listed:
			c.synced = true
			c.compare()
			continue
		case i.update != nil:
			c.processor.Update(i.update.key, i.update.value, i.update.revision, c.o.Now())
			c.updated(i.update.key)
			continue
		}
		state := c.processor.State
		if transient(i.input) {
			state = c.processor.Decoded // for an input that may be lost no document is decoded
		}
		b.add(i.input, c.o.Route(i.input, c.processor.Known, state), i.settle)
	}
	for _, entity := range b.order {
		c.apply(ctx, entity, b.parts[entity])
	}
}

// compare has every document compared with the log once: what a broker has lost of it is there.
func (c *Core[S]) compare() {
	if c.o.Memory.Recall == nil {
		return
	}
	for _, entity := range c.processor.Known() {
		if s, ok := c.processor.State(entity); ok && c.o.Memory.Over != nil && c.o.Memory.Over(s) {
			continue
		}
		c.timers.set(timerKey{entity, repairTimer}, c.o.Now())
	}
}

// updated sets the timers of an entity whose document has changed. A long document changes often
// while it matters, and the replica that changes it has set the same timers, so decoding it can
// wait.
func (c *Core[S]) updated(entity string) {
	if c.processor.Undecoded(entity) <= decodeAtOnce {
		c.setTimers(entity, time.Time{})
		return
	}
	if key := (timerKey{entity, decodeTimer}); c.timers.at[key].IsZero() {
		c.timers.set(key, c.o.Now().Add(decodeAfter))
	}
}

// apply gives an entity its inputs and settles them. If the batch fails because of its content,
// each input is retried alone, so that one bad input does not fail the others.
func (c *Core[S]) apply(ctx context.Context, entity string, parts []*part) {
	settled := false
	out, err := c.once(ctx, entity, inputsOf(parts), func(out Result) {
		settled = true
		settle(parts, out, nil)
	})
	if settled {
		return
	}
	if len(parts) > 1 && permanent(err) {
		for _, p := range parts {
			c.apply(ctx, entity, []*part{p})
		}
		return
	}
	settle(parts, out, err)
}

// permanent reports whether an error recurs however often the input is retried.
func permanent(err error) bool {
	code := errcode.Of(err)
	return code == errcode.Internal || code == errcode.Invalid || code == errcode.TooLarge
}

// once processes inputs of one entity and observes the result.
func (c *Core[S]) once(ctx context.Context, entity string, inputs []events.Input, stored func(Result)) (Result, error) {
	ctx, cancel := c.o.Limit(ctx)
	defer cancel()
	now := c.o.Now()
	if c.o.Others != nil {
		for i := range inputs {
			inputs[i].Others = func() any { return c.o.Others(entity, c.processor.Known, c.processor.State) }
		}
	}
	out, err := c.processor.process(ctx, entity, inputs, now, hooks{stored: stored, conflict: func(n int) { c.yield(ctx, n, c.o.Now().Sub(now)) }})
	if took := c.o.Now().Sub(now); took > longProcess || out.Conflicts > 0 {
		// Inputs accumulate while the core rests: the next batch applies all of them at the cost of
		// one, and another replica that wants to change the same document gets its chance.
		c.restUntil = c.o.Now().Add(min(max(took/2, longProcess), longRest))
	}
	if err != nil {
		c.o.failed(entity, traceOfAny(inputs), err)
		c.setTimers(entity, now.Add(retryAfter))
		return out, err
	}
	c.observe(entity, inputs, out)
	c.setTimers(entity, time.Time{})
	return out, nil
}

// yield waits after n consecutive conflicts, which took this long together. Without it the faster
// of two replicas always wins.
func (c *Core[S]) yield(ctx context.Context, n int, took time.Duration) {
	if each := took / time.Duration(n); each > longProcess {
		c.o.Sleep(ctx, min(c.o.Random(each*time.Duration(n)), longRest*time.Duration(n)))
	}
}

// setTimers sets the timers of an entity's deadline and unpublished outbox, none before floor.
func (c *Core[S]) setTimers(entity string, floor time.Time) {
	set := func(what timerKind, at time.Time) {
		if !at.IsZero() && at.Before(floor) {
			at = floor
		}
		c.timers.set(timerKey{entity, what}, at)
	}
	set(deadlineTimer, c.processor.Deadline(entity))
	since := c.processor.UnpublishedSince(entity)
	if !since.IsZero() {
		since = since.Add(republishAfter)
	}
	set(publishTimer, since)
	if c.processor.Broken(entity) {
		set(repairTimer, c.o.Now())
	}
}

// fire fires the timers that are due. A deadline that changes nothing is not fired again at once: a
// machine whose deadline stays in the past must not spin.
func (c *Core[S]) fire(ctx context.Context) {
	for {
		key, ok := c.timers.pop(c.o.Now())
		if !ok {
			return
		}
		switch key.kind {
		case publishTimer:
			c.republish(ctx, key.entity)
		case repairTimer:
			c.repair(ctx, key.entity)
		case decodeTimer:
			c.setTimers(key.entity, time.Time{})
		case deadlineTimer:
			// Otherwise its timers are set already.
			if _, err := c.once(ctx, key.entity, []events.Input{{Body: events.Tick{}}}, func(Result) {}); err == nil {
				c.setTimers(key.entity, c.o.Now().Add(minTickInterval))
			}
		}
	}
}

// republish publishes an outbox that has waited too long: the replica that stored it may be gone.
func (c *Core[S]) republish(ctx context.Context, entity string) {
	ctx, cancel := c.o.Limit(ctx)
	defer cancel()
	c.o.failed(entity, "", c.processor.Publish(ctx, entity))
	c.setTimers(entity, c.o.Now().Add(republishAfter))
}
