package sim

import (
	"fmt"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/discovery"
	"github.com/regroup-io/regroup/services/discovery/liveness"
	"github.com/regroup-io/regroup/services/registry"
	"github.com/regroup-io/regroup/services/registry/job"
	"github.com/regroup-io/regroup/services/rendezvous"
	"github.com/regroup-io/regroup/services/rendezvous/round"
	"github.com/regroup-io/regroup/services/scheduler"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// mutation replaces machines by broken ones; nil keeps the real one.
type mutation struct {
	name      string
	nodes     func(controller.Machine[liveness.State]) controller.Machine[liveness.State]
	pool      func(controller.Machine[plan.State]) controller.Machine[plan.State]
	round     func(controller.Machine[round.State]) controller.Machine[round.State]
	job       func(controller.Machine[job.State]) controller.Machine[job.State]
	agent     func(agentStep) agentStep
	forgetful bool // the outbox that a crash has left is never published
	amnesic   bool // the inputs that a document has applied are not remembered
	careless  bool // documents are stored without comparing revisions
	believing bool // a save whose acknowledgement was lost is taken for successful
	trustful  bool // the last sequence in the log is not checked
	graceless bool // discovery counts its own downtime as missed heartbeats
	hasty     bool // the registry declares jobs hung too early
	leaseless bool // agents know of no lease
	voidSteps bool // a step after the last commit counts although it was rolled back
}

func (w *world) buildServices(m mutation) {
	w.mutant = m
	for i := range w.sc.replicas[0] {
		c := &connection{w: w}
		s := must(discovery.New(c.ports(), w.discoveryConfig(), nil))
		v := &watcher{w: w}
		o := s.Options()
		others := o.Others
		o.Others = func(node string, known func() []string, state func(string) (liveness.State, bool)) any {
			k := others(node, known, state).(liveness.Known)
			k.HeardSince = func(who liveness.Incarnation, silence time.Duration) bool {
				return v.ages.HeardSince(who, silence, w.now)
			}
			return k
		}
		r := addReplica(w, i, c, o, m.nodes)
		v.r = r
		r.ages = v
		v.poll()
	}
	for i := range w.sc.replicas[1] {
		c := &connection{w: w}
		s := must(scheduler.New(c.ports(), nil))
		addReplica(w, i, c, s.Options(), m.pool)
	}
	for i := range w.sc.replicas[2] {
		c := &connection{w: w}
		s := must(rendezvous.New(c.ports(), nil))
		addReplica(w, i, c, s.Options(), m.round)
	}
	for i := range w.sc.replicas[3] {
		c := &connection{w: w}
		s := must(registry.New(c.ports(), nil))
		r := addReplica(w, i, c, s.Options(), m.job)
		l := &listener{w: w, r: r}
		r.ages = l
		l.poll()
	}
	for _, name := range events.ServiceNames() {
		for _, s := range w.services[name] {
			s.start()
		}
	}
}

// must returns v, and panics for an error: default options are valid.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// addReplica adds a replica of a service with its real routes, consumers, reconciliation and
// machine.
func addReplica[S any](w *world, i int, side *connection, o controller.Options[S], mutate func(controller.Machine[S]) controller.Machine[S]) *replica {
	if mutate != nil {
		o.Machine = mutate(o.Machine)
	}
	r := &replica{
		w: w, who: fmt.Sprintf("%s-%d", o.Service, i), service: o.Service, bucket: o.Bucket, reconciles: o.Reconcile,
		side: side, conn: &connection{w: w, dead: true},
	}
	r.newCore = func() core { return must(controller.NewCore(virtual(r, o))) }
	if i == 0 {
		for _, c := range o.Consumers {
			w.durables = append(w.durables, &durable{w: w, consumer: c, service: o.Service})
		}
	}
	w.services[o.Service] = append(w.services[o.Service], r)
	return r
}

// pollEvery is how often discovery checks the ages of heartbeats.
const pollEvery = 100 * time.Millisecond

// watcher is discovery's state in the memory of one replica.
type watcher struct {
	w    *world
	r    *replica
	ages liveness.HeartbeatTracker
	// The stored nodes, to be compared with the host list.
	views map[events.NodeID]events.NodeView
	asked time.Time
}

func (v *watcher) reset() {
	c := v.w.discoveryConfig()
	v.views, v.asked = map[events.NodeID]events.NodeView{}, v.w.now
	v.ages = liveness.HeartbeatTracker{SuspectAfter: c.SuspectAfter, LostAfter: c.LostAfter, Gap: c.SuspectAfter / 2, ReconnectWithin: c.ReconnectWithin}
}

func (v *watcher) seen(key string, value []byte) {
	if value == nil {
		v.ages.Forget(events.NodeID(key))
		delete(v.views, events.NodeID(key))
		return
	}
	if view, err := document.View[events.NodeView](value); err == nil {
		since := v.w.now
		if v.w.mutant.graceless {
			since = since.Add(-time.Minute)
		}
		v.ages.Update(view, since)
		v.views[view.Node] = view
	}
}

func (v *watcher) connected(is bool) { v.ages.Connected(is, v.w.now) }

func (v *watcher) signal(b any) (events.Body, bool) {
	if l, ok := b.(events.Link); ok {
		return v.ages.ConnectionClosed(l, v.w.now)
	}
	h, ok := b.(events.Heartbeat)
	mend := ok && v.ages.Observe(liveness.Incarnation{Node: h.Node, Incarnation: h.Incarnation}, h.Link, v.w.now)
	return events.HeartbeatSeen{Heartbeat: h}, mend
}

func (v *watcher) poll() {
	v.w.after(pollEvery, v.poll)
	if !v.r.up || v.r.isFrozen() {
		return
	}
	for _, cut := range v.ages.Disconnections(v.w.now) {
		v.r.put(controller.InputItem(events.Input{Body: cut}))
	}
	v.list()
	suspect, ask := v.ages.Check(v.w.now)
	for _, who := range suspect {
		v.missed(who, false)
	}
	for _, who := range ask {
		v.ping(who)
	}
}

// missed emits that an agent was silent; failed = it did not answer a ping either.
func (v *watcher) missed(who liveness.Incarnation, failed bool) {
	silence := spec.Duration(v.ages.Silence(who, v.w.now))
	if v.w.mutant.graceless {
		silence = 0
	}
	v.r.put(controller.InputItem(events.Input{Body: events.HeartbeatMissed{Node: who.Node, Incarnation: who.Incarnation, Failed: failed, Silence: silence, Unheard: v.ages.Unheard(who)}}))
}

// ping sends one request to an agent.
func (v *watcher) ping(who liveness.Incarnation) {
	n := v.w.nodeOf(who.Node)
	if n.up && !n.cut && !n.mute && !n.deaf && !n.frozen && n.agent == who.Incarnation && v.r.canReceive() && !v.r.conn.mute && !v.w.chance(v.w.sc.loss) {
		v.r.after(2*v.w.hop(), func() {
			if v.ages.Observe(who, n.link, v.w.now) {
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
		if !v.ages.Deaf(v.w.now) && v.ages.PingPending(who) && v.hears() {
			v.missed(who, true)
		}
	})
}
