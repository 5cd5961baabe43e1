package sim

import (
	"cmp"
	"context"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/controller"
)

// service is one replica of a service, with any type of state.
type service interface {
	known
	reachable
	receiver
	breakable
	changed(key string, value []byte, revision uint64)
}

// known identifies a service.
type known interface {
	world() *world
	name() string
	service() string
	isFrozen() bool
}

// reachable reports which messages can reach a service.
type reachable interface {
	canReceive() bool
	canPull() bool
}

// receiver takes messages.
type receiver interface {
	delivered(*delivery)
	asked(events.Body, func(controller.InputResult, error))
	receive(events.Body)
	signal(any)
}

// breakable is the interface for faults of a service.
type breakable interface {
	cuttable
	start()
	crash(back time.Duration)
	freeze(time.Duration)
	trap(trap)
}

// cuttable is the interface for faults of a service's connection.
type cuttable interface {
	cutOff(bool)
	mute(bool)
	deafen(bool)
}

// soft is the state that each replica keeps in memory, derived from signals.
type soft interface {
	reset()
	connected(bool)
	seen(key string, value []byte)
	signal(any) (in events.Body, ok bool) // a signal or an event of the broker; ok: in is an input of the machine
}

// replica drives the controller.Core of a service in virtual time, as controller.Host does by the
// clock: it offers what arrives and steps the core a little later, and when the core asks for it.
type replica[S any] struct {
	w           *world
	who         string
	o           controller.Options[S] // as in the real service
	ages        soft                  // its state in memory; may be nil
	side        *connection           // the connection of the service's own reconciliation
	incarnation int                   // crashes so far
	up          bool
	frozen      time.Time // until then
	busy        bool      // in a step that was frozen midway
	stepping    bool
	conn        *connection
	core        *controller.Core[S]
	watched     map[string]uint64 // newest revision by key that the watch of its bucket has delivered
	unread      []func()          // updates of the service's watch of its bucket, applied with the next step
	woken       bool              // a step is on the agenda because something arrived
	timer       time.Time         // a step is on the agenda because the core asked for it
}

func (r *replica[S]) world() *world    { return r.w }
func (r *replica[S]) name() string     { return r.who }
func (r *replica[S]) service() string  { return r.o.Service }
func (r *replica[S]) canReceive() bool { return r.up && !r.conn.cut && !r.conn.deaf }
func (r *replica[S]) canSend() bool    { return r.up && !r.conn.cut && !r.conn.mute && !r.conn.dead }
func (r *replica[S]) canPull() bool    { return r.canReceive() && r.canSend() } // deliveries are pulled
func (r *replica[S]) isFrozen() bool   { return r.busy || r.w.now.Before(r.frozen) }
func (r *replica[S]) trap(t trap)      { r.conn.traps = append(r.conn.traps, t) }

func (r *replica[S]) start() {
	if r.up {
		return
	}
	r.up = true
	r.conn = &connection{w: r.w, who: r.who, still: r.still}
	core, err := controller.NewCore(r.options())
	if err != nil {
		panic(err) // the options are complete
	}
	r.core, r.woken, r.timer, r.unread = core, false, time.Time{}, nil
	if r.ages != nil {
		r.ages.reset()
	}
	r.list()
	incarnation := r.incarnation
	r.w.after(r.w.between(0, 20*time.Millisecond), func() { r.reconcile(incarnation) })
}

// options are those of the service with an environment of virtual time.
func (r *replica[S]) options() controller.Options[S] {
	o := r.o
	o.Ports = r.conn.ports()
	o.NewID = func() string { return r.w.id("nonce") }
	o.Now = func() time.Time { return r.w.now }
	o.Sleep = func(_ context.Context, d time.Duration) bool {
		r.still(d)
		return true
	}
	o.Random = func(below time.Duration) time.Duration { return r.w.between(0, below) }
	o.Limit = func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} }
	o.Observe = r.observe
	if r.o.Complete != nil {
		o.Complete = func(ctx context.Context, b events.Body) (events.Body, error) {
			r.side.cut, r.side.mute, r.side.deaf = r.conn.cut, r.conn.mute, r.conn.deaf
			return r.o.Complete(ctx, b)
		}
	}
	return o
}

// observe writes the log. A permanent error of an input is a violation.
func (r *replica[S]) observe(o controller.Observation) {
	switch {
	case o.Fact != nil:
		r.w.logf("%s: %s %s #%d %s", r.who, o.Entity, o.Fact.Body.Type().Kind(), o.Fact.Number, brief(o.Fact.Body))
	case o.Repaired != "":
		r.w.check.fail(0, "%s %s: no document was damaged: %s", r.who, o.Entity, o.Repaired)
	case o.Err != nil:
		switch events.CodeOf(o.Err) {
		case events.Internal, events.Invalid, events.TooLarge:
			r.w.check.fail(0, "%s %s: %v", r.who, o.Entity, o.Err)
		}
	}
}

// crash ends the process; the next one starts after back. During a step it takes effect at the end
// of the step.
func (r *replica[S]) crash(back time.Duration) {
	if !r.up {
		return
	}
	r.conn.dead = true
	if r.stepping {
		return
	}
	r.w.logf("%s: crashed, back in %s", r.who, back)
	r.up = false
	r.incarnation++
	r.w.after(back, r.start)
}

func (r *replica[S]) freeze(d time.Duration) { r.frozen = r.w.now.Add(d) }

// still freezes the replica in the middle of its step, while the others continue.
func (r *replica[S]) still(d time.Duration) {
	if r.busy {
		return
	}
	r.busy = true
	r.w.runUntil(r.w.now.Add(d))
	r.busy = false
}

func (r *replica[S]) cutOff(cut bool) {
	if !r.up || r.conn.cut == cut {
		return
	}
	r.conn.cut = cut
	r.w.logf("%s: cut off: %t", r.who, cut)
	if r.ages != nil {
		r.ages.connected(!cut)
	}
	if !cut {
		r.list()
	}
}

func (r *replica[S]) mute(is bool) { r.oneWay(&r.conn.mute, is) }

func (r *replica[S]) deafen(is bool) { r.oneWay(&r.conn.deaf, is) }

// oneWay breaks or restores one direction of the connection. The replica does not notice.
func (r *replica[S]) oneWay(way *bool, is bool) {
	if !r.up || *way == is {
		return
	}
	*way = is
	r.w.logf("%s: mute %t, deaf %t", r.who, r.conn.mute, r.conn.deaf)
	if !is {
		r.list()
	}
}

// list offers the whole bucket, as a watch does when it starts or reconnects.
func (r *replica[S]) list() {
	r.watched = map[string]uint64{}
	for _, d := range r.w.documents(r.o.Bucket) {
		r.changed(d.key, d.value, d.revision)
	}
	r.put(controller.SyncedItem())
}

func (r *replica[S]) reconcile(incarnation int) {
	if r.incarnation != incarnation || r.o.Reconcile == nil {
		return
	}
	if !r.isFrozen() {
		r.side.cut, r.side.mute, r.side.deaf = r.conn.cut, r.conn.mute, r.conn.deaf
		_ = r.o.Reconcile(context.Background(), func(in events.Input) { r.put(controller.InputItem(in)) })
	}
	r.w.after(controller.ReconcileEvery, func() { r.reconcile(incarnation) })
}

func (r *replica[S]) changed(key string, value []byte, revision uint64) {
	if !r.canReceive() {
		return
	}
	if r.ages != nil && revision > r.watched[key] { // a watch keeps the order
		r.watched[key] = revision
		r.unread = append(r.unread, func() { r.ages.seen(key, value) })
	}
	r.put(controller.UpdateItem(key, r.w.stripped(value), revision))
}

func (r *replica[S]) receive(b events.Body) {
	if r.canReceive() {
		r.put(controller.InputItem(events.Input{Time: r.w.now, Body: b}))
	}
}

func (r *replica[S]) signal(b any) {
	if !r.canReceive() || r.ages == nil {
		return
	}
	if in, ok := r.ages.signal(b); ok {
		r.receive(in)
	}
}

func (r *replica[S]) asked(b events.Body, settle func(controller.InputResult, error)) {
	incarnation := r.incarnation
	r.put(controller.RequestItem(events.Input{Body: b}, func(a controller.InputResult, err error) {
		if r.incarnation == incarnation && r.canSend() {
			settle(a, err)
		}
	}))
}

// delivered offers a message of a consumer. What its settlement says is lost if the replica is gone
// or cut off by then.
func (r *replica[S]) delivered(v *delivery) {
	incarnation := r.incarnation
	settles := func(do func()) {
		if r.incarnation != incarnation || !r.canSend() {
			return
		}
		if t, ok := r.conn.sprung(crashBeforeAck); ok {
			r.conn.die(t)
			return
		}
		do()
	}
	done := func() { settles(func() { v.settled = true }) }
	item, ok := r.core.DeliveryItem(context.Background(), v.durable.consumer, events.Delivery{
		Stored:  v.stored,
		Attempt: v.attempt,
		Ack:     done,
		Retry:   func(after time.Duration) { settles(func() { v.retry(after) }) },
		Drop:    func(string) { done() },
	})
	if ok {
		r.put(item)
	}
}

func (r *replica[S]) put(i controller.Item) {
	if !r.up {
		return
	}
	r.core.Offer(i)
	r.wakeUp(r.w.between(50*time.Microsecond, time.Millisecond))
}

func (r *replica[S]) wakeUp(in time.Duration) {
	if r.woken {
		return
	}
	r.woken = true
	incarnation := r.incarnation
	r.w.after(in, func() {
		if r.incarnation == incarnation {
			r.woken = false
			r.step()
		}
	})
}

// step steps the core and schedules the next step that it asks for.
func (r *replica[S]) step() {
	if r.stepping || r.isFrozen() {
		r.wakeUp(max(50*time.Millisecond, r.frozen.Sub(r.w.now)))
		return
	}
	r.stepping = true
	for _, read := range r.unread {
		read()
	}
	r.unread = nil
	r.core.Step(context.Background())
	r.stepping = false
	if r.conn.dead {
		r.crash(cmp.Or(r.conn.away, r.w.between(100*time.Millisecond, 3*time.Second)))
		return
	}
	next := r.core.Next()
	if next.IsZero() || !r.timer.IsZero() && !next.Before(r.timer) {
		return
	}
	r.timer = next
	incarnation := r.incarnation
	r.w.at(next, func() {
		if r.incarnation == incarnation && r.timer.Equal(next) {
			r.timer = time.Time{}
			r.step()
		}
	})
}
