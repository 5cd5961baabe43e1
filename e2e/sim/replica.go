package sim

import (
	"cmp"
	"context"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/controller"
)

// service is one replica of a judge, whatever its state is.
type service interface {
	known
	reachable
	hearer
	breakable
	changed(key string, r record)
}

// known is what is asked of a service.
type known interface {
	world() *world
	name() string
	service() string
	bucket() string
	isFrozen() bool
}

// reachable is what can be told to a service.
type reachable interface {
	hears() bool
	pulls() bool
}

// hearer takes what arrives.
type hearer interface {
	delivered(*delivery)
	asked(events.Body, func(controller.InputResult, error))
	heard(events.Body)
	signal(any)
}

// breakable is what faults do to a service, and their end.
type breakable interface {
	cuttable
	start()
	crash(back time.Duration)
	freeze(time.Duration)
	trap(trap)
}

// cuttable is how the way to a service can break.
type cuttable interface {
	cutOff(bool)
	mute(bool)
	deafen(bool)
}

// soft is what a service hears and keeps in the memory of each replica.
type soft interface {
	reset()
	connected(bool)
	seen(key string, value []byte)
	heard(any) (in events.Body, ok bool) // a signal, or a word of the broker; ok: in is for the machine
}

// replica drives the controller.Core of a service in virtual time, as controller.Host does by the
// clock: it offers what arrives and steps the core a little later, and when the core asks for it.
type replica[S any] struct {
	w        *world
	who      string
	o        controller.Options[S] // those of the real service
	ages     soft                  // what it keeps in memory; may be nil
	side     *connection           // that the service's own reconciliation reads through
	life     int                   // crashes so far
	up       bool
	frozen   time.Time // until then
	busy     bool      // in a step that was frozen midway
	stepping bool
	conn     *connection
	core     *controller.Core[S]
	unread   []func()  // what the service's own watch of its bucket brings with the next step
	woken    bool      // a step is on the agenda because something arrived
	alarm    time.Time // a step is on the agenda because the core asked for it
}

func (r *replica[S]) world() *world   { return r.w }
func (r *replica[S]) name() string    { return r.who }
func (r *replica[S]) service() string { return r.o.Service }
func (r *replica[S]) bucket() string  { return r.o.Bucket }
func (r *replica[S]) hears() bool     { return r.up && !r.conn.cut && !r.conn.deaf }
func (r *replica[S]) says() bool      { return r.up && !r.conn.cut && !r.conn.mute && !r.conn.dead }
func (r *replica[S]) pulls() bool     { return r.hears() && r.says() } // what is delivered was asked for
func (r *replica[S]) isFrozen() bool  { return r.busy || r.w.now.Before(r.frozen) }
func (r *replica[S]) trap(t trap)     { r.conn.traps = append(r.conn.traps, t) }

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
	r.core, r.woken, r.alarm, r.unread = core, false, time.Time{}, nil
	if r.ages != nil {
		r.ages.reset()
	}
	r.list()
	life := r.life
	r.w.after(r.w.between(0, 20*time.Millisecond), func() { r.reconcile(life) })
}

// options are those of the service with an environment of virtual time.
func (r *replica[S]) options() controller.Options[S] {
	o := r.o
	o.Ports = r.conn.ports()
	o.NewID = func() string { return r.w.id("nonce") }
	o.Now = func() time.Time { return r.w.now }
	o.Sleep = func(_ context.Context, d time.Duration) { r.still(d) }
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

// observe tells the story. An error that comes back however often an input is tried is a fault of
// the system.
func (r *replica[S]) observe(o controller.Observation) {
	switch {
	case o.Fact != nil:
		r.w.say("%s: %s %s #%d %s", r.who, o.Entity, o.Fact.Body.Type().Kind(), o.Fact.Number, brief(o.Fact.Body))
	case o.Err != nil:
		switch events.CodeOf(o.Err) {
		case events.Internal, events.Invalid, events.TooLarge:
			r.w.check.fail(0, "%s %s: %v", r.who, o.Entity, o.Err)
		}
	}
}

// crash takes the process away; back is when the next one starts. In the midst of a step it takes
// effect at its end.
func (r *replica[S]) crash(back time.Duration) {
	if !r.up {
		return
	}
	r.conn.dead = true
	if r.stepping {
		return
	}
	r.w.say("%s: crashed, back in %s", r.who, back)
	r.up = false
	r.life++
	r.w.after(back, r.start)
}

func (r *replica[S]) freeze(d time.Duration) { r.frozen = r.w.now.Add(d) }

// still freezes the replica here and now, with its step half done, while the others go on.
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
	r.w.say("%s: cut off: %t", r.who, cut)
	if r.ages != nil {
		r.ages.connected(!cut)
	}
	if !cut {
		r.list()
	}
}

func (r *replica[S]) mute(is bool) { r.oneWay(&r.conn.mute, is) }

func (r *replica[S]) deafen(is bool) { r.oneWay(&r.conn.deaf, is) }

// oneWay breaks or mends one direction of the connection. The replica itself does not notice.
func (r *replica[S]) oneWay(way *bool, is bool) {
	if !r.up || *way == is {
		return
	}
	*way = is
	r.w.say("%s: mute %t, deaf %t", r.who, r.conn.mute, r.conn.deaf)
	if !is {
		r.list()
	}
}

// list offers the whole bucket, as a watch does when it begins or comes back.
func (r *replica[S]) list() {
	for _, k := range r.w.store.keys(r.o.Bucket) {
		r.changed(k, r.w.store.buckets[r.o.Bucket][k])
	}
	r.put(controller.SyncedItem())
}

func (r *replica[S]) reconcile(life int) {
	if r.life != life || r.o.Reconcile == nil {
		return
	}
	if !r.isFrozen() {
		r.side.cut, r.side.mute, r.side.deaf = r.conn.cut, r.conn.mute, r.conn.deaf
		_ = r.o.Reconcile(context.Background(), func(in events.Input) { r.put(controller.InputItem(in)) })
	}
	r.w.after(controller.ReconcileEvery, func() { r.reconcile(life) })
}

func (r *replica[S]) changed(key string, rec record) {
	if !r.hears() {
		return
	}
	if r.ages != nil {
		r.unread = append(r.unread, func() { r.ages.seen(key, rec.value) })
	}
	r.put(controller.UpdateItem(key, r.w.stripped(rec.value), rec.revision))
}

func (r *replica[S]) heard(b events.Body) {
	if r.hears() {
		r.put(controller.InputItem(events.Input{Time: r.w.now, Body: b}))
	}
}

func (r *replica[S]) signal(b any) {
	if !r.hears() || r.ages == nil {
		return
	}
	if in, ok := r.ages.heard(b); ok {
		r.heard(in)
	}
}

func (r *replica[S]) asked(b events.Body, settle func(controller.InputResult, error)) {
	life := r.life
	r.put(controller.RequestItem(events.Input{Body: b}, func(a controller.InputResult, err error) {
		if r.life == life && r.says() {
			settle(a, err)
		}
	}))
}

// delivered offers a message of a consumer. What its settlement says is lost if the replica is gone
// or cut off by then.
func (r *replica[S]) delivered(v *delivery) {
	life := r.life
	settles := func(do func()) {
		if r.life != life || !r.says() {
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
	life := r.life
	r.w.after(in, func() {
		if r.life == life {
			r.woken = false
			r.step()
		}
	})
}

// step steps the core and puts the next step that it asks for on the agenda.
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
	if next.IsZero() || !r.alarm.IsZero() && !next.Before(r.alarm) {
		return
	}
	r.alarm = next
	life := r.life
	r.w.at(next, func() {
		if r.life == life && r.alarm.Equal(next) {
			r.alarm = time.Time{}
			r.step()
		}
	})
}
