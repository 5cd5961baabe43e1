package sim

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
)

// connection is a replica's connection to the store, with the traps that faults have set.
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
	loseSaveAckLate     step = "lose-save-ack-late" // after other replicas have had time to change the document; not in steps, because recorded scenarios index them
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

var errNotConnected = events.Errorf(events.Unavailable, "not connected")

func (c *connection) err() error {
	if c.cut || c.dead || c.mute {
		return errNotConnected
	}
	return nil
}

// answer is the error of a request that was executed: its reply may be lost.
func (c *connection) answer() error {
	if c.deaf {
		return events.Errorf(events.Unavailable, "no answer")
	}
	return nil
}

// reads is the error of a request without effects.
func (c *connection) reads() error { return cmp.Or(c.err(), c.answer()) }

func (c *connection) ports() events.Ports {
	return events.Ports{Log: simLog{c}, Signals: simSignals{c}, Buckets: simBuckets{c}, Calls: simCalls{}, Links: simLinks{}, Clock: simClock{c}}
}

type simLog struct{ *connection }

func (l simLog) Publish(_ context.Context, m events.Message) (uint64, error) {
	l.freeze(freezeBeforePublish)
	if err := l.err(); err != nil {
		return 0, err
	}
	seq := l.w.store.publish(m)
	if t, ok := l.sprung(crashAfterPublish); ok {
		l.die(t)
	}
	if _, ok := l.sprung(losePublishAck); ok {
		return 0, events.Errorf(events.Unavailable, "no answer")
	}
	return seq, l.answer()
}

func (l simLog) PublishAll(ctx context.Context, all []events.Message) error {
	for _, m := range all {
		if _, err := l.Publish(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func (l simLog) Last(_ context.Context, stream, subject string) (events.Stored, error) {
	if err := l.reads(); err != nil {
		return events.Stored{}, err
	}
	m, ok := l.w.store.newest(stream, subject)
	if !ok || l.w.mutant.trustful {
		return m, events.Errorf(events.NotFound, "nothing on %s", subject)
	}
	return m, nil
}

type simClock struct{ *connection }

func (c simClock) Now(context.Context) (time.Time, error) { return c.w.now, c.reads() }

type simBuckets struct{ *connection }

func (b simBuckets) Bucket(name string) events.Bucket { return simBucket{b.connection, name} }

type simBucket struct {
	*connection
	name string
}

func (b simBucket) Load(_ context.Context, key string) ([]byte, uint64, error) {
	if err := b.reads(); err != nil {
		return nil, 0, err
	}
	if _, ok := b.sprung("read"); ok {
		return nil, 0, errNotConnected
	}
	r := b.w.store.buckets[b.name][key]
	if r.value == nil {
		return nil, 0, events.Errorf(events.NotFound, "no %s", key)
	}
	return b.w.stripped(r.value), r.revision, nil
}

// stripped is a document as the replicas of a broken controller see it.
func (w *world) stripped(value []byte) []byte {
	if !w.mutant.forgetful && !w.mutant.amnesic || value == nil {
		return value
	}
	d, err := document.Decode(value)
	if err != nil {
		return value
	}
	if w.mutant.forgetful {
		d.Outbox, d.Elided = nil, nil
	}
	if w.mutant.amnesic {
		d.Applied = nil
	}
	if out, err := document.Encode(d); err == nil {
		return out
	}
	return value
}

func (b simBucket) Save(_ context.Context, key string, value []byte, revision uint64) (uint64, error) {
	b.freeze(freezeBeforeSave)
	if err := b.err(); err != nil {
		return 0, err
	}
	r := b.w.store.buckets[b.name][key]
	if b.w.mutant.careless {
		revision = r.revision
	}
	if (r.value == nil && revision != 0) || (r.value != nil && r.revision != revision) {
		return 0, cmp.Or(b.answer(), events.Errorf(events.Conflict, "somebody was first"))
	}
	at := b.w.store.change(b.name, key, value)
	if t, ok := b.sprung(crashAfterSave); ok {
		b.die(t)
		return at, nil
	}
	if _, ok := b.sprung(loseSaveAndRead); ok {
		b.traps = append(b.traps, trap{step: "read"})
		return 0, events.Errorf(events.Unavailable, "no answer")
	}
	if _, ok := b.sprung(loseSaveAck); ok {
		return 0, events.Errorf(events.Unavailable, "no answer")
	}
	if t, ok := b.sprung(loseSaveAckLate); ok {
		b.still(t.for_)
		if b.w.mutant.believing {
			return at, nil
		}
		return 0, events.Errorf(events.Unavailable, "no answer")
	}
	return at, b.answer()
}

func (b simBucket) Delete(_ context.Context, key string, revision uint64) error {
	if err := b.err(); err != nil {
		return err
	}
	if r := b.w.store.buckets[b.name][key]; r.value == nil || r.revision != revision {
		return cmp.Or(b.answer(), events.Errorf(events.Conflict, "somebody was first"))
	}
	b.w.store.change(b.name, key, nil)
	return b.answer()
}

// Watch lists the present keys and returns: the store itself delivers changes.
func (b simBucket) Watch(ctx context.Context, fn func(string, []byte, uint64), listed func()) error {
	if err := b.reads(); err != nil {
		return err
	}
	for _, k := range b.w.store.keys(b.name) {
		r := b.w.store.buckets[b.name][k]
		fn(k, r.value, r.revision)
	}
	if listed != nil {
		listed()
	}
	return context.Cause(ctx)
}

type simSignals struct{ *connection }

func (s simSignals) Send(subject string, data []byte) error {
	if s.err() == nil {
		s.w.signal(subject, data)
	}
	return nil
}

// Methods that a Core never calls.

var errNotPlayed = events.Errorf(events.Internal, "the simulation does not play this")

func (simLog) Consume(context.Context, events.Consumer, func(events.Delivery)) error {
	return errNotPlayed
}

func (simLog) Follow(context.Context, events.Follow, func(events.Stored) error, func()) error {
	return errNotPlayed
}

func (simSignals) Hear(context.Context, string, string, func(string, []byte), func()) error {
	return errNotPlayed
}

func (simSignals) Launches(context.Context, string, string, func(events.Stored)) error {
	return errNotPlayed
}
func (simSignals) Watch(context.Context, func(bool)) error { return errNotPlayed }

type simCalls struct{}

type simLinks struct{}

func (simLinks) Own() events.Link { return events.Link{} }
func (simLinks) Ends(context.Context, func(events.Link), func()) error {
	return errNotPlayed
}

func (simCalls) Call(context.Context, string, []byte) ([]byte, error) { return nil, errNotPlayed }
func (simCalls) Serve(context.Context, string, string, func(context.Context, []byte) ([]byte, error)) error {
	return errNotPlayed
}
