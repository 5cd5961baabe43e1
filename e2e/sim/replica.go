package sim

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/services/controller"
)

// soft is the state that each replica keeps in memory, derived from signals.
type soft interface {
	reset()
	connected(bool)
	seen(key string, value []byte)
	signal(any) (in events.Body, ok bool) // a signal or an event of the broker; ok: in is an input of the machine
}

// core is the controller.Core of a service, whatever its state is.
type core interface {
	Offer(controller.Item)
	Step(context.Context)
	Next() time.Time
	DeliveryItem(context.Context, broker.Consumer, broker.Delivery) (controller.Item, bool)
}

// replica drives the controller.Core of a service in virtual time, as controller.Host does by the
// clock: it offers what arrives and steps the core a little later, and when the core asks for it.
type replica struct {
	w           *world
	who         string
	service     string
	bucket      string                                       // of its documents
	newCore     func() core                                  // as in the real service, in virtual time
	reconciles  func(context.Context, controller.Emit) error // as in the real service; may be nil
	tracker     soft                                         // its state in memory; may be nil
	side        *connection                                  // the connection of the service's own reconciliation
	incarnation int                                          // crashes so far
	up          bool
	frozen      time.Time // until then
	busy        bool      // in a step that was frozen midway
	stepping    bool
	conn        *connection
	core        core
	watched     map[string]uint64 // newest revision by key that the watch of its bucket has delivered
	unread      []func()          // updates of the service's watch of its bucket, applied with the next step
	woken       bool              // a step is on the agenda because something arrived
	timer       time.Time         // a step is on the agenda because the core asked for it
}

func (r *replica) canReceive() bool { return r.up && !r.conn.cut && !r.conn.deaf }
func (r *replica) canSend() bool    { return r.up && !r.conn.cut && !r.conn.mute && !r.conn.dead }
func (r *replica) canPull() bool    { return r.canReceive() && r.canSend() } // deliveries are pulled
func (r *replica) isFrozen() bool   { return r.busy || r.w.now.Before(r.frozen) }
func (r *replica) trap(t trap)      { r.conn.traps = append(r.conn.traps, t) }

func (r *replica) start() {
	if r.up {
		return
	}
	r.up = true
	r.conn = &connection{w: r.w, who: r.who, still: r.still}
	r.core, r.woken, r.timer, r.unread = r.newCore(), false, time.Time{}, nil
	if r.tracker != nil {
		r.tracker.reset()
	}
	r.list()
	r.after(r.w.between(0, 20*time.Millisecond), r.reconcile)
}

// after calls do later if the process has not crashed by then.
func (r *replica) after(d time.Duration, do func()) {
	incarnation := r.incarnation
	r.w.after(d, func() {
		if r.incarnation == incarnation {
			do()
		}
	})
}

// virtual returns the options of a service with an environment of virtual time.
func virtual[S any](r *replica, o controller.Options[S]) controller.Options[S] {
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
	if complete := o.Complete; complete != nil {
		o.Complete = func(ctx context.Context, b events.Body) (events.Body, error) {
			r.side.cut, r.side.mute, r.side.deaf = r.conn.cut, r.conn.mute, r.conn.deaf
			return complete(ctx, b)
		}
	}
	return o
}

// observe writes the log. A permanent error of an input is a violation.
func (r *replica) observe(o controller.Observation) {
	switch {
	case o.Fact != nil:
		r.w.logf("%s: %s %s #%d %s", r.who, o.Entity, o.Fact.Body.Type().Kind(), o.Fact.Number, brief(o.Fact.Body))
	case o.Repaired != "":
		r.w.check.fail(0, "%s %s: no document was damaged: %s", r.who, o.Entity, o.Repaired)
	case o.Err != nil:
		switch errcode.Of(o.Err) {
		case errcode.Internal, errcode.Invalid, errcode.TooLarge:
			r.w.check.fail(0, "%s %s: %v", r.who, o.Entity, o.Err)
		}
	}
}

// crash ends the process; the next one starts after back. During a step it takes effect at the end
// of the step.
func (r *replica) crash(back time.Duration) {
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

func (r *replica) freeze(d time.Duration) { r.frozen = r.w.now.Add(d) }

// still freezes the replica in the middle of its step, while the others continue.
func (r *replica) still(d time.Duration) {
	if r.busy {
		return
	}
	r.busy = true
	r.w.runUntil(r.w.now.Add(d))
	r.busy = false
}

func (r *replica) cutOff(cut bool) {
	if !r.up || r.conn.cut == cut {
		return
	}
	r.conn.cut = cut
	r.w.logf("%s: cut off: %t", r.who, cut)
	if r.tracker != nil {
		r.tracker.connected(!cut)
	}
	if !cut {
		r.list()
	}
}

func (r *replica) mute(is bool) { r.oneWay(&r.conn.mute, is) }

func (r *replica) deafen(is bool) { r.oneWay(&r.conn.deaf, is) }

// oneWay breaks or restores one direction of the connection. The replica does not notice.
func (r *replica) oneWay(way *bool, is bool) {
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
func (r *replica) list() {
	r.watched = map[string]uint64{}
	for _, d := range r.w.documents(r.bucket) {
		r.changed(d.key, d.value, d.revision)
	}
	r.put(controller.SyncedItem())
}

func (r *replica) reconcile() {
	if r.reconciles == nil {
		return
	}
	if !r.isFrozen() {
		r.side.cut, r.side.mute, r.side.deaf = r.conn.cut, r.conn.mute, r.conn.deaf
		_ = r.reconciles(context.Background(), func(in events.Input) { r.put(controller.InputItem(in)) })
	}
	r.after(controller.ReconcileEvery, r.reconcile)
}

func (r *replica) changed(key string, value []byte, revision uint64) {
	if !r.canReceive() {
		return
	}
	if r.tracker != nil && revision > r.watched[key] { // a watch keeps the order
		r.watched[key] = revision
		r.unread = append(r.unread, func() { r.tracker.seen(key, value) })
	}
	r.put(controller.UpdateItem(key, r.w.stripped(value), revision))
}

func (r *replica) receive(b events.Body) {
	if r.canReceive() {
		r.put(controller.InputItem(events.Input{Time: r.w.now, Body: b}))
	}
}

func (r *replica) signal(b any) {
	if !r.canReceive() || r.tracker == nil {
		return
	}
	if in, ok := r.tracker.signal(b); ok {
		r.receive(in)
	}
}

func (r *replica) asked(b events.Body, settle func(controller.InputResult, error)) {
	incarnation := r.incarnation
	r.put(controller.RequestItem(events.Input{Body: b}, func(a controller.InputResult, err error) {
		if r.incarnation == incarnation && r.canSend() {
			settle(a, err)
		}
	}))
}

// delivered offers a message of a consumer. What its settlement says is lost if the replica is gone
// or cut off by then.
func (r *replica) delivered(v *delivery) {
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
	item, ok := r.core.DeliveryItem(context.Background(), v.durable.consumer, broker.Delivery{
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

func (r *replica) put(i controller.Item) {
	if !r.up {
		return
	}
	r.core.Offer(i)
	r.wakeUp(r.w.between(50*time.Microsecond, time.Millisecond))
}

func (r *replica) wakeUp(in time.Duration) {
	if r.woken {
		return
	}
	r.woken = true
	r.after(in, func() {
		r.woken = false
		r.step()
	})
}

// step steps the core and schedules the next step that it asks for.
func (r *replica) step() {
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

// connection is a replica's connection to the broker, with the traps that faults have set.
type connection struct {
	w     *world
	who   string
	cut   bool // partitioned
	mute  bool // it sends nothing
	deaf  bool // it receives nothing
	dead  bool // its process has crashed: it sends nothing more
	traps []trap
	away  time.Duration       // how long a crash in a step lasts; 0 = drawn
	still func(time.Duration) // freezes the replica in the middle of a step
}

// trap is a fault that strikes at the next step of its kind.
type trap struct {
	step step
	for_ time.Duration
}

// step is a point in the processing of an entity at which a fault can strike a replica.
type step string

// Steps of one processing, in order.
const (
	freezeBeforeSave    step = "freeze-before-save"
	loseSaveAck         step = "lose-save-ack"
	loseSaveAndRead     step = "lose-save-ack-and-read"
	crashAfterSave      step = "crash-after-save"
	freezeBeforePublish step = "freeze-before-publish"
	losePublishAck      step = "lose-publish-ack"
	crashAfterPublish   step = "crash-after-publish"
	crashBeforeAck      step = "crash-before-ack"
	// Not in steps, because recorded scenarios index them.
	loseSaveAckLate step = "lose-save-ack-late" // after other replicas have had time to change the document
	read            step = "read"               // set by loseSaveAndRead
)

var steps = []step{
	freezeBeforeSave, loseSaveAck, loseSaveAndRead, crashAfterSave, freezeBeforePublish, losePublishAck, crashAfterPublish, crashBeforeAck,
}

// sprung reports whether a trap for this step was set, and removes it.
func (c *connection) sprung(s step) (trap, bool) {
	i := slices.IndexFunc(c.traps, func(t trap) bool { return t.step == s })
	if i < 0 || c.w.calm {
		return trap{}, false
	}
	t := c.traps[i]
	c.traps = slices.Delete(c.traps, i, i+1)
	c.w.logf("%s: %s", c.who, s)
	return t, true
}

// die is a crash in the middle of a step. Only a written scenario says how long it lasts.
func (c *connection) die(t trap) {
	c.dead = true
	if c.w.sc.exact {
		c.away = t.for_
	}
}

func (c *connection) freeze(s step) {
	if t, ok := c.sprung(s); ok {
		c.still(t.for_)
	}
}

var errNotConnected = errcode.Errorf(errcode.Unavailable, "not connected")

var errNoAnswer = errcode.Errorf(errcode.Unavailable, "no answer")

// err is the error of a request that is not sent.
func (c *connection) err() error {
	if c.cut || c.dead || c.mute {
		return errNotConnected
	}
	return nil
}

// answer is the error of a request that was executed: its reply may be lost.
func (c *connection) answer() error {
	if c.deaf {
		return errNoAnswer
	}
	return nil
}

// ports returns the ports of a new client of the broker, with the faults of this connection.
func (c *connection) ports() broker.Ports {
	p := c.w.broker.Intercepted(c.intercept).Ports()
	if m := c.w.mutant; m.trustful || m.careless || m.forgetful || m.amnesic {
		p.Log, p.Buckets = mutantLog{p.Log, m}, mutantBuckets{p.Buckets, c.w}
	}
	return p
}

// intercept executes an operation unless a fault or a trap prevents it, and loses its answer.
func (c *connection) intercept(op memory.Operation, execute func() error) error {
	switch op {
	case memory.Save:
		c.freeze(freezeBeforeSave)
	case memory.Publish:
		c.freeze(freezeBeforePublish)
	}
	if err := c.err(); err != nil {
		return err
	}
	if op == memory.Load && !c.deaf {
		if _, ok := c.sprung(read); ok {
			return errNotConnected
		}
	}
	if err := execute(); err != nil {
		return cmp.Or(c.answer(), err)
	}
	switch op {
	case memory.Save:
		return c.saved()
	case memory.Publish:
		return c.published()
	}
	return c.answer()
}

// saved is the answer to a save.
func (c *connection) saved() error {
	if t, ok := c.sprung(crashAfterSave); ok {
		c.die(t)
		return nil
	}
	if _, ok := c.sprung(loseSaveAndRead); ok {
		c.traps = append(c.traps, trap{step: read})
		return errNoAnswer
	}
	if _, ok := c.sprung(loseSaveAck); ok {
		return errNoAnswer
	}
	if t, ok := c.sprung(loseSaveAckLate); ok {
		c.still(t.for_)
		if c.w.mutant.believing {
			return nil
		}
		return errNoAnswer
	}
	return c.answer()
}

// published is the answer to a publication.
func (c *connection) published() error {
	if t, ok := c.sprung(crashAfterPublish); ok {
		c.die(t)
	}
	if _, ok := c.sprung(losePublishAck); ok {
		return errNoAnswer
	}
	return c.answer()
}
