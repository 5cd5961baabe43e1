package sim

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/services/controller"
)

// ackWait is how long a delivery may stay unacknowledged before it is delivered again.
const ackWait = 2 * time.Second

// durable is a consumer that the replicas of a service share.
type durable struct {
	w        *world
	consumer broker.Consumer
	service  string
}

// delivery is one message for one consumer, until it is settled.
type delivery struct {
	durable *durable
	stored  broker.Stored
	event   events.Event // the decoded message, for the log
	attempt int
	settled bool
}

// carry delivers to a replica after a delay, and again if the delivery was not settled in time.
func (d *durable) carry(v *delivery, after time.Duration) {
	d.w.after(after, func() {
		if v.settled {
			return
		}
		to := d.w.pickFor(d.service, string(v.event.Body.Type().Family())+"."+v.event.Body.Type().Kind(), (*replica).canPull)
		if to == nil {
			d.carry(v, 300*time.Millisecond)
			return
		}
		v.attempt++
		to.delivered(v)
		if d.w.chance(d.w.sc.repeat) { // a duplicate delivery although the first was settled
			d.w.after(d.w.between(0, 3*time.Second), func() {
				if again := d.w.pick(d.service); again != nil {
					again.delivered(&delivery{durable: d, stored: v.stored, event: v.event, attempt: v.attempt + 1})
				}
			})
		}
		d.carry(v, ackWait)
	})
}

// retry schedules another delivery (a negative acknowledgement).
func (v *delivery) retry(after time.Duration) {
	old := *v
	v.settled = true
	old.durable.carry(&old, after)
}

// pick selects a replica that can receive, frozen ones included: they process their messages late.
func (w *world) pick(name string) *replica { return w.pickFor(name, "", (*replica).canReceive) }

// pickFor selects a replica for which can holds: the one that a written scenario names, if
// possible.
func (w *world) pickFor(name, kind string, can func(*replica) bool) *replica {
	if s := w.routes[kind]; s != nil && s.service == name && can(s) {
		return s
	}
	var up []*replica
	for _, s := range w.services[name] {
		if can(s) && w.sc.exact && !s.isFrozen() {
			return s
		}
		if can(s) {
			up = append(up, s)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[w.any(len(up))]
}

// callTimeout is the agent's timeout for one request.
const callTimeout = 2 * time.Second

// call sends a request to a service; then is called once. The request or its reply may be lost, and
// the request may be received twice.
func (w *world) call(n *node, name string, ask events.Body, then func(events.Body, error)) {
	done := false
	incarnation := n.incarnation
	answer := func(b events.Body, err error) {
		if !done && n.incarnation == incarnation {
			done = true
			then(b, err)
		}
	}
	if n.cut {
		w.after(time.Millisecond, func() { answer(nil, errNotConnected) })
		return
	}
	w.after(callTimeout, func() { answer(nil, errcode.Errorf(errcode.Cancelled, "no answer")) })
	if n.mute || w.chance(w.sc.loss) {
		return
	}
	ask1 := func() {
		to := w.pickFor(name, string(ask.Type().Family())+"."+ask.Type().Kind(), (*replica).canReceive)
		if to == nil {
			answer(nil, errNotConnected)
			return
		}
		to.asked(ask, func(a controller.InputResult, err error) {
			if err == nil {
				err = a.Refusal
			}
			if n.cut || n.deaf || w.chance(w.sc.loss) {
				return
			}
			w.after(w.hop(), func() { answer(a.Reply, err) })
		})
	}
	w.after(w.hop(), ask1)
	if w.chance(w.sc.repeat) {
		w.after(w.between(0, 4*time.Second), ask1)
	}
}

// signal broadcasts a notice of a service, which each receiver may miss.
func (w *world) signal(subject string, data []byte) {
	var b events.NoticeEnvelope
	if events.Match(events.AllNotices, subject) && json.Unmarshal(data, &b) == nil {
		w.notice(b)
	}
}

func (w *world) heartbeat(b events.Heartbeat) {
	for _, s := range w.services[events.ServiceDiscovery] {
		if !w.chance(w.sc.loss) {
			w.after(w.hop(), func() { s.signal(b) })
		}
	}
	if to := w.pick(events.ServiceRendezvous); to != nil && !w.chance(w.sc.loss) {
		w.after(w.hop(), func() { to.receive(b) })
	}
}

func (w *world) notice(b events.NoticeEnvelope) {
	if to := w.pick(events.ServiceRendezvous); to != nil && b.Notice != nil && !w.chance(w.sc.loss) {
		w.after(w.hop(), func() { to.receive(*b.Notice) })
	}
	for _, n := range w.nodes {
		if !w.chance(w.sc.loss) {
			w.after(w.hop(), func() { n.noticed(b) })
		}
	}
}

// launched delivers a stored launch to its node, unless it is lost.
func (w *world) launched(m broker.Stored) {
	before := w.launches[m.Subject]
	w.launches[m.Subject] = m
	var l events.Launch
	if err := json.Unmarshal(m.Data, &l); err != nil {
		w.check.fail(0, "launch does not decode: %v", err)
		return
	}
	w.check.launch(l)
	var newer events.Launch
	if json.Unmarshal(before.Data, &newer) == nil && newer.Revision > l.Revision {
		w.logf("%s: a launch with revision %d comes after revision %d", l.Node, l.Revision, newer.Revision)
	}
	switch n := w.nodeOf(l.Node); {
	case n == nil:
	case n.misses > 0:
		n.misses--
		w.logf("%s: a launch with revision %d is lost", n.id, l.Revision)
	case !w.chance(w.sc.loss):
		w.after(w.hop(), func() { n.receiveLaunch(m) })
	}
}

// dedup is the deduplication window of a stream. It is much shorter than a broker's, so that
// nothing relies on it.
const dedup = 3 * time.Second

// newBroker returns the broker of a world. What it stores reaches replicas and agents after a hop.
func newBroker(w *world) *memory.Bus {
	return memory.NewWith(memory.Options{
		Now: func() time.Time { return w.now }, Dedup: dedup,
		Stored: w.stored, Changed: w.changed, Sent: w.signal,
	})
}

// stored checks a message and delivers it to every consumer, or to its node.
func (w *world) stored(stream string, m broker.Stored) {
	if stream == events.StreamLaunches {
		w.launched(m)
		return
	}
	e, err := cloudevent.Decode(m.Header, m.Data)
	if err != nil {
		w.check.fail(0, "message on %s does not decode: %v", m.Subject, err)
		return
	}
	if stream == events.StreamFacts {
		w.check.fact(e)
	}
	for _, d := range w.durables {
		if d.consumer.Stream == stream && events.MatchAny(d.consumer.Subjects, m.Subject) {
			d.carry(&delivery{durable: d, stored: m, event: e}, w.hop())
		}
	}
}

// changed checks a document's new value and delivers it to the watches of its service.
func (w *world) changed(bucket, key string, value []byte, revision uint64) {
	w.check.saved(bucket, key, value)
	for _, s := range events.Services() {
		if s.Bucket != bucket {
			continue
		}
		for _, v := range w.services[s.Name] {
			w.after(w.hop(), func() { v.changed(key, value, revision) })
		}
	}
}

// publish publishes what an agent or a client sends.
func (w *world) publish(m broker.Message) {
	if _, err := w.broker.Ports().Log.Publish(context.Background(), m); err != nil {
		w.check.fail(0, "message on %s: %v", m.Subject, err)
	}
}

// record is one entry of a bucket.
type record struct {
	key      string
	value    []byte
	revision uint64
}

// documents lists a bucket by key.
func (w *world) documents(bucket string) []record {
	var all []record
	ctx, cancel := context.WithCancel(context.Background())
	_ = w.broker.Ports().Buckets.Bucket(bucket).Watch(ctx, func(key string, value []byte, revision uint64) {
		all = append(all, record{key, value, revision})
	}, cancel) // ends with the list
	slices.SortFunc(all, func(a, b record) int { return strings.Compare(a.key, b.key) })
	return all
}
