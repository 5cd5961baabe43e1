package sim

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
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

// replica plays controller.Host: it feeds a real Processor with what arrives, one batch at a time.
type replica[S any] struct {
	w      *world
	who    string
	o      controller.Options[S] // those of the real service
	ages   soft                  // what it keeps in memory; may be nil
	side   *connection           // that the service's own reconciliation reads through
	life   int                   // crashes so far
	up     bool
	frozen time.Time // until then
	busy   bool      // in a turn that was frozen midway
	conn   *connection
	turner *controller.Processor[S]
	inbox  []arrival
	woken  bool // work is on the agenda
	wakes  map[wake]time.Time
	alarm  time.Time // on the agenda
}

type arrival struct {
	input  events.Input
	settle func(controller.InputResult, error)
	key    string // a change of the bucket
	record *record
}

type wake struct {
	entity string
	tell   bool
}

func (r *replica[S]) world() *world   { return r.w }
func (r *replica[S]) name() string    { return r.who }
func (r *replica[S]) service() string { return r.o.Service }
func (r *replica[S]) bucket() string  { return r.o.Bucket }
func (r *replica[S]) hears() bool     { return r.up && !r.conn.cut && !r.conn.deaf }
func (r *replica[S]) says() bool      { return r.up && !r.conn.cut && !r.conn.mute }
func (r *replica[S]) pulls() bool     { return r.hears() && r.says() } // what is delivered was asked for
func (r *replica[S]) isFrozen() bool  { return r.busy || r.w.now.Before(r.frozen) }
func (r *replica[S]) trap(t trap)     { r.conn.traps = append(r.conn.traps, t) }

func (r *replica[S]) start() {
	if r.up {
		return
	}
	r.up = true
	r.conn = &connection{w: r.w, who: r.who, still: r.still}
	t, err := controller.NewProcessor(controller.ProcessorOptions[S]{
		Service: r.o.Service, Machine: r.o.Machine, Bucket: r.o.Bucket, Ports: r.conn.ports(),
		NewID: func() string { return r.w.id("nonce") }, Complete: r.completes(),
	})
	if err != nil {
		panic(err) // the options are complete
	}
	r.turner, r.inbox, r.woken, r.wakes, r.alarm = t, nil, false, map[wake]time.Time{}, time.Time{}
	if r.ages != nil {
		r.ages.reset()
	}
	r.list()
	life := r.life
	r.w.after(r.w.between(0, 20*time.Millisecond), func() { r.reconcile(life) })
}

// crash takes the process away; back is when the next one starts. In the midst of a turn it takes effect at its end.
func (r *replica[S]) crash(back time.Duration) {
	if !r.up {
		return
	}
	r.conn.dead = true
	if r.busy {
		return
	}
	r.w.say("%s: crashed, back in %s", r.who, back)
	r.up = false
	r.life++
	r.w.after(back, r.start)
}

func (r *replica[S]) freeze(d time.Duration) { r.frozen = r.w.now.Add(d) }

// still freezes the replica here and now, with its turn half done, while the others go on.
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

// list takes in the whole bucket, as a watch does when it begins or comes back.
func (r *replica[S]) list() {
	for _, k := range r.w.store.keys(r.o.Bucket) {
		rec := r.w.store.buckets[r.o.Bucket][k]
		r.put(arrival{key: k, record: &rec})
	}
}

func (r *replica[S]) reconcile(life int) {
	if r.life != life || r.o.Reconcile == nil {
		return
	}
	if !r.isFrozen() {
		r.side.cut, r.side.mute, r.side.deaf = r.conn.cut, r.conn.mute, r.conn.deaf
		_ = r.o.Reconcile(context.Background(), func(in events.Input) { r.put(arrival{input: in}) })
	}
	r.w.after(controller.ReconcileEvery, func() { r.reconcile(life) })
}

func (r *replica[S]) changed(key string, rec record) {
	if r.hears() {
		r.put(arrival{key: key, record: &rec})
	}
}

func (r *replica[S]) heard(b events.Body) {
	if r.hears() {
		r.put(arrival{input: events.Input{Time: r.w.now, Body: b}})
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
	r.put(arrival{input: events.Input{Body: b}, settle: func(a controller.InputResult, err error) {
		if r.life == life && r.says() {
			settle(a, err)
		}
	}})
}

// delivered settles as controller.Host does.
func (r *replica[S]) delivered(v *delivery) {
	e := fresh(v.event)
	in := events.Input{ID: e.ID, Source: e.Source, Number: e.Number, Time: e.Time, Trace: e.Trace, Body: e.Body}
	life := r.life
	r.put(arrival{input: in, settle: func(a controller.InputResult, err error) {
		if r.life != life || !r.says() {
			return // the settlement is lost
		}
		command := v.durable.stream == events.StreamCommands
		switch code := events.CodeOf(err); {
		case err == nil && command && events.CodeOf(a.Refusal) == events.Conflict:
			v.retry(0)
		case err == nil || errors.Is(err, controller.ErrUnrouted):
			if command && (err != nil || a.Refusal != nil && a.Facts == 0) {
				r.refuse(e, a, err)
			}
			v.settled = true
		case code == events.Internal || code == events.Invalid || code == events.TooLarge:
			r.w.check.fail(0, "%s on %s: %v", r.who, e.Body.Type(), err)
		case v.attempt < controller.MaxAttempt || code != events.Newer:
			v.retry(time.Second)
		}
	}})
}

func (r *replica[S]) refuse(e events.Event, a controller.InputResult, err error) {
	if r.o.Reject == nil {
		return
	}
	if err == nil {
		err = a.Refusal
	}
	if f, ok := r.o.Reject(e, err); ok {
		r.w.say("%s: refused %s: %v", r.who, e.Body.Type().Kind(), err)
		told := events.Event{
			ID: r.o.Service + "-rejected-" + e.ID, Source: "/regroup/" + r.o.Service, Entity: cmp.Or(f.Entity, "unknown"),
			Time: r.w.now, Cause: e.ID, Body: f.Body,
		}
		if m, err := cloudevent.Encode(told); err == nil {
			r.w.store.publish(m)
		}
	}
}

func (r *replica[S]) put(a arrival) {
	if !r.up {
		return
	}
	r.inbox = append(r.inbox, a)
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
			r.work()
		}
	})
}

// work takes what has arrived and what is due.
func (r *replica[S]) work() {
	if r.isFrozen() {
		r.wakeUp(max(50*time.Millisecond, r.frozen.Sub(r.w.now)))
		return
	}
	batch := r.inbox
	r.inbox = nil
	r.batch(batch)
	r.due()
}

// completes is what the service adds to its facts. It reads through the connection of the replica as it is now.
func (r *replica[S]) completes() func(context.Context, events.Body) (events.Body, error) {
	if r.o.Complete == nil {
		return nil
	}
	return func(ctx context.Context, b events.Body) (events.Body, error) {
		r.side.cut, r.side.mute, r.side.deaf = r.conn.cut, r.conn.mute, r.conn.deaf
		return r.o.Complete(ctx, b)
	}
}
