package sim

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/controller"
)

func (r *replica[S]) batch(batch []arrival) {
	life := r.life
	var b controller.Batch
	for _, a := range batch {
		if a.record != nil {
			r.turner.Seen(a.key, r.w.stripped(a.record.value), a.record.revision, r.w.now)
			if r.ages != nil {
				r.ages.seen(a.key, a.record.value)
			}
			r.arm(a.key, time.Time{})
			continue
		}
		b.Add(a.input, r.o.Route(a.input, r.turner.Known, r.turner.State), a.settle)
	}
	b.Each(func(entity string, parts []*controller.Part) bool {
		out, err, alive := r.once(entity, controller.Inputs(parts))
		if alive {
			controller.Settle(parts, out, err)
		}
		return r.life == life
	})
}

// once runs one turn; alive = the replica was not taken away by it.
func (r *replica[S]) once(entity string, inputs []events.Input) (out controller.Result, err error, alive bool) {
	now := r.w.now
	out, err = r.turner.Turn(context.Background(), entity, inputs, now)
	if events.CodeOf(err) == events.Internal {
		r.w.check.fail(0, "%s %s: %v", r.who, entity, err)
	}
	if err == nil {
		for _, f := range out.Facts {
			r.w.say("%s: %s %s #%d %s", r.who, entity, f.Body.Type().Kind(), f.Number, brief(f.Body))
		}
	}
	if t, ok := r.conn.sprung(crashBeforeAck); ok {
		r.conn.die(t)
	}
	if r.conn.dead {
		r.busy = false
		r.crash(cmp.Or(r.conn.away, r.w.between(100*time.Millisecond, 3*time.Second)))
		return out, err, false
	}
	floor := time.Time{}
	if err != nil {
		floor = now.Add(controller.RetryAfter)
	}
	r.arm(entity, floor)
	return out, err, true
}

// arm sets an entity's alarms.
func (r *replica[S]) arm(entity string, floor time.Time) {
	set := func(k wake, at time.Time) {
		if at.IsZero() {
			delete(r.wakes, k)
			return
		}
		if at.Before(floor) {
			at = floor
		}
		r.wakes[k] = at
	}
	set(wake{entity, false}, r.turner.Deadline(entity))
	since := r.turner.Waiting(entity)
	if !since.IsZero() {
		since = since.Add(controller.RepublishAfter)
	}
	set(wake{entity, true}, since)
	r.setAlarm()
}

func (r *replica[S]) setAlarm() {
	var next time.Time
	for _, at := range r.wakes {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if next.IsZero() || (!r.alarm.IsZero() && !next.Before(r.alarm)) {
		return
	}
	r.alarm = next
	life := r.life
	r.w.at(next, func() {
		if r.life == life && r.alarm.Equal(next) {
			r.alarm = time.Time{}
			r.wakeUp(0)
		}
	})
}

// due fires the alarms whose time has come, in a fixed order.
func (r *replica[S]) due() {
	life := r.life
	for r.life == life {
		var key wake
		found := false
		for k, at := range r.wakes {
			if !at.After(r.w.now) && (!found || k.entity < key.entity || (k.entity == key.entity && !k.tell)) {
				key, found = k, true
			}
		}
		if !found {
			r.setAlarm()
			return
		}
		delete(r.wakes, key)
		if key.tell {
			_ = r.turner.Tell(context.Background(), key.entity)
			r.arm(key.entity, r.w.now.Add(controller.RepublishAfter))
			continue
		}
		_, err, alive := r.once(key.entity, []events.Input{{Body: events.Tick{}}})
		if alive && err == nil {
			r.arm(key.entity, r.w.now.Add(controller.MinTickInterval))
		}
		if errors.Is(err, events.ErrInvalid) {
			r.w.check.fail(0, "%s %s: %v", r.who, key.entity, err)
		}
	}
}
