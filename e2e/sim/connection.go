package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/memory"
)

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

var errNotConnected = events.Errorf(events.Unavailable, "not connected")

var errNoAnswer = events.Errorf(events.Unavailable, "no answer")

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
func (c *connection) ports() events.Ports {
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
