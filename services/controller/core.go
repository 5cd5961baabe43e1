package controller

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/regroup-io/regroup/events"
)

// own is the goroutine that owns the documents: everything that happens goes through here, so there is no lock.
func (h *Host[S]) own(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if at, ok := h.wakes.next(); ok {
			timer.Reset(max(0, at.Sub(h.o.Now())))
		} else {
			timer.Reset(time.Hour)
		}
		var batch []arrival
		select {
		case <-ctx.Done():
			h.leave()
			return ctx.Err()
		case a := <-h.inbox:
			h.pause(ctx)
			batch = h.more(a)
		case <-timer.C:
		}
		// A turn that has begun is finished: an unfinished save would only cost the next replica a doubt.
		h.batch(context.WithoutCancel(ctx), batch)
		h.due(context.WithoutCancel(ctx))
	}
}

// pause lets inputs gather after a long turn, or one that was raced for: the next one takes all of them for the same price, and
// another replica that wants to change the same document gets its chance.
func (h *Host[S]) pause(ctx context.Context) {
	d := h.rest.Sub(h.o.Now())
	if d <= 0 {
		return
	}
	pause(ctx, d)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// more takes what else has arrived already, but no more ids than a document remembers.
func (h *Host[S]) more(a arrival) []arrival {
	batch := []arrival{a}
	ids := 0
	for len(batch) < batchSize && ids < ringSize {
		select {
		case a := <-h.inbox:
			batch = append(batch, a)
			if a.input.ID != "" {
				ids++
			}
		default:
			return batch
		}
	}
	return batch
}

// leave gives back what has arrived and was not looked at.
func (h *Host[S]) leave() {
	stopping := events.Errorf(events.Unavailable, "%s is stopping", h.o.Service)
	for {
		select {
		case a := <-h.inbox:
			if a.settle != nil {
				a.settle(InputResult{}, stopping)
			}
		default:
			return
		}
	}
}

// batch routes a batch and gives each entity one turn with its inputs, in the order of arrival.
func (h *Host[S]) batch(ctx context.Context, batch []arrival) {
	var b Batch
	for _, a := range batch {
		switch {
		case a.listed:
			close(h.listed)
			continue
		case a.change != nil:
			h.turner.Seen(a.change.key, a.change.value, a.change.revision, h.o.Now())
			h.seen(a.change.key)
			continue
		}
		state := h.turner.State
		if lossy(a.input) {
			state = h.turner.Peek // nothing is read anew for what may be lost
		}
		b.Add(a.input, h.o.Route(a.input, h.turner.Known, state), a.settle)
	}
	b.Each(func(entity string, parts []*Part) bool {
		h.turn(ctx, entity, parts)
		return true
	})
}

// seen arms the alarms of an entity whose document has changed. A long one changes often while it matters, and whoever changes
// it has armed the same alarms: it is read after a while.
func (h *Host[S]) seen(entity string) {
	if h.turner.Unread(entity) <= readAtOnce {
		h.arm(entity, time.Time{})
		return
	}
	if _, ok := h.wakes.at[wakeKey{entity, look}]; !ok {
		h.wakes.set(wakeKey{entity, look}, h.o.Now().Add(DecodeAfter))
	}
}

// turn gives an entity its inputs.
func (h *Host[S]) turn(ctx context.Context, entity string, parts []*Part) {
	settled := false
	out, err := h.once(ctx, entity, Inputs(parts), func(out Result) {
		settled = true
		Settle(parts, out, nil)
	})
	if settled {
		return
	}
	if code := events.CodeOf(err); len(parts) > 1 && (code == events.Internal || code == events.Invalid || code == events.TooLarge) {
		for _, p := range parts { // so that one bad input does not spoil the others
			h.turn(ctx, entity, []*Part{p})
		}
		return
	}
	Settle(parts, out, err)
}

// once runs one turn and reports what came of it.
func (h *Host[S]) once(ctx context.Context, entity string, inputs []events.Input, stored func(Result)) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	now := h.o.Now()
	out, err := h.turner.turn(ctx, entity, inputs, now, course{stored: stored, lost: func(n int) { h.yield(ctx, n, h.o.Now().Sub(now)) }})
	if took := h.o.Now().Sub(now); took > longTurn || out.Lost > 0 {
		h.rest = h.o.Now().Add(min(max(took/2, longTurn), longRest))
	}
	if err != nil {
		h.o.Observe(Observation{Service: h.o.Service, Entity: entity, Err: err})
		h.arm(entity, now.Add(RetryAfter))
		return out, err
	}
	h.observe(entity, out)
	h.arm(entity, time.Time{})
	return out, nil
}

// yield waits after n lost races in a row, which took so long together: between replicas that decide again at once for as long,
// the quicker one wins every time.
func (h *Host[S]) yield(ctx context.Context, n int, took time.Duration) {
	if each := took / time.Duration(n); each > longTurn {
		pause(ctx, min(rand.N(each*time.Duration(n)), longRest*time.Duration(n)))
	}
}

// arm sets the entity's alarms: its deadline, not before floor, and the telling of what waits in its outbox.
func (h *Host[S]) arm(entity string, floor time.Time) {
	due := h.turner.Deadline(entity)
	if !due.IsZero() && due.Before(floor) {
		due = floor
	}
	h.wakes.set(wakeKey{entity, deadline}, due)
	since := h.turner.Waiting(entity)
	if !since.IsZero() {
		since = since.Add(RepublishAfter)
		if since.Before(floor) {
			since = floor
		}
	}
	h.wakes.set(wakeKey{entity, tell}, since)
}

// due fires the alarms whose time has come. An alarm that changes nothing is not fired again at once: a machine whose
// deadline stays in the past must not spin.
func (h *Host[S]) due(ctx context.Context) {
	for {
		key, ok := h.wakes.pop(h.o.Now())
		if !ok {
			return
		}
		switch key.what {
		case tell:
			h.tellAgain(ctx, key.entity)
			continue
		case look:
			h.arm(key.entity, time.Time{})
			continue
		}
		if _, err := h.once(ctx, key.entity, []events.Input{{Body: events.Tick{}}}, func(Result) {}); err == nil { // else it is armed already
			h.arm(key.entity, h.o.Now().Add(MinTickInterval))
		}
	}
}

// tellAgain tells what has waited in an outbox for too long; its replica may be gone.
func (h *Host[S]) tellAgain(ctx context.Context, entity string) {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	if err := h.turner.Tell(ctx, entity); err != nil {
		h.o.Observe(Observation{Service: h.o.Service, Entity: entity, Err: err})
	}
	h.arm(entity, h.o.Now().Add(RepublishAfter))
}
