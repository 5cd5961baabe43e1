package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
)

// durable is the shared position of a consumer.
type durable struct {
	next     uint64
	subjects []string    // those of its newest Consume
	open     []*delivery // delivered and not settled, by sequence
}

type delivery struct {
	message broker.Stored
	attempt int
	due     time.Time // time of the redelivery
	holder  *int      // identity of the Consume that has it; nil = none, it waits for its retry
}

// take returns the next message to be delivered, or when to look again (zero = when woken).
func (s *stream) take(d *durable, c broker.Consumer, me *int, now time.Time) (*delivery, time.Time) {
	var soonest time.Time
	busy := 0
	for _, o := range d.open {
		if !o.due.After(now) {
			o.attempt++
			o.due, o.holder = now.Add(c.AckWait), me
			return o, time.Time{}
		}
		if soonest.IsZero() || o.due.Before(soonest) {
			soonest = o.due
		}
		if o.holder == me {
			busy++
		}
	}
	if busy >= c.Parallel {
		return nil, soonest
	}
	for _, m := range s.messages[s.index(d.next):] {
		d.next = m.Sequence + 1
		if events.MatchAny(c.Subjects, m.Subject) {
			o := &delivery{message: m, attempt: 1, due: now.Add(c.AckWait), holder: me}
			d.open = append(d.open, o)
			return o, time.Time{}
		}
	}
	return nil, soonest
}

// Consume implements broker.Log. It calls handle one at a time, so that runs are reproducible.
func (l log) Consume(ctx context.Context, c broker.Consumer, handle func(broker.Delivery)) error {
	c = c.WithDefaults()
	l.bus.mu.Lock()
	s, err := l.stream(c.Stream)
	if err != nil {
		l.bus.mu.Unlock()
		return err
	}
	d := s.durables[c.Durable]
	if d == nil {
		d = &durable{}
		s.durables[c.Durable] = d
	}
	d.subjects = c.Subjects
	l.bus.mu.Unlock()
	wake, leave := l.bus.enter(s)
	defer leave()
	me := new(int)
	for ctx.Err() == nil {
		var give *delivery
		var soonest time.Time
		var out broker.Delivery
		l.bus.mu.Lock()
		if !l.down {
			if give, soonest = s.take(d, c, me, time.Now()); give != nil {
				out = l.delivery(s, d, give)
			}
		}
		l.bus.mu.Unlock()
		if give != nil {
			handle(out)
			continue
		}
		wait(ctx, wake, soonest)
	}
	return context.Cause(ctx)
}

// wait returns when woken, at a time (zero = never), or at the end of ctx.
func wait(ctx context.Context, wake <-chan struct{}, at time.Time) {
	var due <-chan time.Time
	if !at.IsZero() {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-wake:
	case <-due:
	case <-ctx.Done():
	}
}

// delivery wraps a message for its handler; the first settlement counts.
func (l log) delivery(s *stream, d *durable, o *delivery) broker.Delivery {
	var once sync.Once
	settle := func(do func()) {
		once.Do(func() {
			l.bus.mu.Lock()
			defer l.bus.mu.Unlock()
			if !l.down { // otherwise the settlement is lost
				do()
				s.wakeAll()
			}
		})
	}
	done := func() {
		d.open = slices.DeleteFunc(d.open, func(x *delivery) bool { return x == o })
		if s.workQueue {
			s.remove(o.message.Sequence)
		}
	}
	return broker.Delivery{
		Stored:  o.message,
		Attempt: o.attempt,
		Ack:     func() { settle(done) },
		Drop:    func(string) { settle(done) },
		Retry: func(after time.Duration) {
			settle(func() { o.due, o.holder = time.Now().Add(after), nil })
		},
	}
}
