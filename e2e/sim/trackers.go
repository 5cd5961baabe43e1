package sim

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/discovery/liveness"
	"github.com/regroup-io/regroup/services/registry"
	"github.com/regroup-io/regroup/services/registry/job"
)

// pollEvery is how often discovery checks the ages of heartbeats.
const pollEvery = 100 * time.Millisecond

// watcher is discovery's state in the memory of one replica.
type watcher struct {
	w       *world
	r       *replica
	tracker liveness.HeartbeatTracker
	// The stored nodes, to be compared with the host list.
	views map[ident.NodeID]events.NodeView
	asked time.Time
}

func (v *watcher) reset() {
	c := v.w.discoveryConfig()
	v.views, v.asked = map[ident.NodeID]events.NodeView{}, v.w.now
	v.tracker = liveness.HeartbeatTracker{SuspectAfter: c.SuspectAfter, LostAfter: c.LostAfter, Gap: c.SuspectAfter / 2, ReconnectWithin: c.ReconnectWithin}
}

func (v *watcher) seen(key string, value []byte) {
	if value == nil {
		v.tracker.Forget(ident.NodeID(key))
		delete(v.views, ident.NodeID(key))
		return
	}
	if view, err := document.View[events.NodeView](value); err == nil {
		since := v.w.now
		if v.w.mutant.graceless {
			since = since.Add(-time.Minute)
		}
		v.tracker.Update(view, since)
		v.views[view.Node] = view
	}
}

func (v *watcher) connected(is bool) { v.tracker.Connected(is, v.w.now) }

func (v *watcher) signal(b any) (events.Body, bool) {
	if l, ok := b.(broker.Link); ok {
		return v.tracker.ConnectionClosed(l, v.w.now)
	}
	h, ok := b.(events.Heartbeat)
	mend := ok && v.tracker.Observe(liveness.Incarnation{Node: h.Node, Incarnation: h.Incarnation}, h.Link, v.w.now)
	return events.HeartbeatSeen{Heartbeat: h}, mend
}

func (v *watcher) poll() {
	v.w.after(pollEvery, v.poll)
	if !v.r.up || v.r.isFrozen() {
		return
	}
	for _, cut := range v.tracker.Disconnections(v.w.now) {
		v.r.put(controller.InputItem(events.Input{Body: cut}))
	}
	v.list()
	suspect, ask := v.tracker.Check(v.w.now)
	for _, who := range suspect {
		v.missed(who, false)
	}
	for _, who := range ask {
		v.ping(who)
	}
}

// missed emits that an agent was silent; failed = it did not answer a ping either.
func (v *watcher) missed(who liveness.Incarnation, failed bool) {
	silence := spec.Duration(v.tracker.Silence(who, v.w.now))
	if v.w.mutant.graceless {
		silence = 0
	}
	v.r.put(controller.InputItem(events.Input{Body: events.HeartbeatMissed{Node: who.Node, Incarnation: who.Incarnation, Failed: failed, Silence: silence, Unheard: v.tracker.Unheard(who)}}))
}

// ping sends one request to an agent.
func (v *watcher) ping(who liveness.Incarnation) {
	n := v.w.nodeOf(who.Node)
	if n.up && !n.cut && !n.mute && !n.deaf && !n.frozen && n.agent == who.Incarnation && v.r.canReceive() && !v.r.conn.mute && !v.w.chance(v.w.sc.loss) {
		v.r.after(2*v.w.hop(), func() {
			if v.tracker.Observe(who, n.link, v.w.now) {
				v.r.receive(events.HeartbeatSeen{Heartbeat: events.Heartbeat{Node: who.Node, Incarnation: who.Incarnation, Link: n.link}})
			}
		})
		return
	}
	wait := 500 * time.Millisecond
	if !n.up || n.cut {
		wait = 2 * v.w.hop() // no responder
	}
	v.r.after(wait, func() {
		if !v.tracker.Deaf(v.w.now) && v.tracker.PingPending(who) && v.hears() {
			v.missed(who, true)
		}
	})
}

// list compares the host list with the stored nodes, as every replica does after each update of the
// list.
func (v *watcher) list() {
	if v.w.now.Sub(v.asked) < v.w.discoveryConfig().HostEvery {
		return
	}
	v.asked = v.w.now
	for _, id := range slices.Sorted(maps.Keys(v.views)) {
		view, n := v.views[id], v.w.nodeOf(id)
		if n != nil && (view.Excluded != n.listed.Excluded || !reflect.DeepEqual(view.Cap, n.listed.Slots)) {
			b := n.listed
			b.Node = id
			v.r.put(controller.InputItem(events.Input{Body: b}))
		}
	}
}

// hears reports whether a request of a replica of discovery to itself is answered.
func (v *watcher) hears() bool {
	return v.r.canReceive() && v.r.canSend() && !v.w.chance(v.w.sc.loss)
}

// listener is the registry's state in the memory of one replica.
type listener struct {
	w       *world
	r       *replica
	tracker job.StepTracker
}

func (l *listener) reset() { l.tracker = registry.NewStepTracker() }

func (l *listener) connected(is bool) { l.tracker.Connected(is, l.w.now) }

func (l *listener) seen(key string, value []byte) {
	if value == nil {
		l.tracker.Forget(ident.JobID(key))
		return
	}
	if v, err := document.View[events.JobView](value); err == nil {
		if l.w.mutant.hasty {
			v.Spec.Health.Hang /= 3
		}
		l.tracker.Update(v, l.w.now)
	}
}

func (l *listener) signal(b any) (events.Body, bool) {
	if p, ok := b.(events.Progress); ok {
		l.tracker.Observe(p, l.w.now)
	}
	return nil, false
}

func (l *listener) poll() {
	l.w.after(registry.CheckEvery, l.poll)
	if !l.r.up || l.r.isFrozen() {
		return
	}
	stalled, progressed := l.tracker.Check(l.w.now)
	for _, p := range progressed {
		l.r.put(controller.InputItem(events.Input{Body: p}))
	}
	for _, s := range stalled {
		if l.w.mutant.hasty {
			s.For *= 3
		}
		l.r.put(controller.InputItem(events.Input{Body: s}))
	}
}

// progress broadcasts an agent's report of a worker's steps; each replica of the registry may miss
// it.
func (w *world) progress(p events.Progress) {
	for _, s := range w.services[events.ServiceRegistry] {
		if s.canReceive() && !s.isFrozen() && !w.chance(w.sc.loss) {
			s.signal(p)
		}
	}
}
