package sim

import (
	"fmt"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/discovery"
	"github.com/regroup-io/regroup/services/discovery/liveness"
	"github.com/regroup-io/regroup/services/registry"
	"github.com/regroup-io/regroup/services/rendezvous"
	"github.com/regroup-io/regroup/services/scheduler"
)

func (w *world) buildServices(m mutation) {
	w.mutant = m
	for n, add := range []func(i int, side *connection){ // in the order of events.Services
		func(i int, side *connection) {
			v := &watcher{w: w}
			o := must(discovery.New(side.ports(), w.discoveryConfig(), nil)).Options()
			others := o.Others
			o.Others = func(node string, known func() []string, state func(string) (liveness.State, bool)) any {
				k := others(node, known, state).(liveness.Known)
				k.HeardSince = func(who liveness.Incarnation, silence time.Duration) bool {
					return v.ages.HeardSince(who, silence, w.now)
				}
				return k
			}
			v.r = addReplica(w, i, side, o, m.nodes)
			v.r.ages = v
			v.poll()
		},
		func(i int, side *connection) {
			addReplica(w, i, side, must(scheduler.New(side.ports(), nil)).Options(), m.pool)
		},
		func(i int, side *connection) {
			addReplica(w, i, side, must(rendezvous.New(side.ports(), nil)).Options(), m.round)
		},
		func(i int, side *connection) {
			l := &listener{w: w, r: addReplica(w, i, side, must(registry.New(side.ports(), nil)).Options(), m.job)}
			l.r.ages = l
			l.poll()
		},
	} {
		for i := range w.sc.replicas[n] {
			add(i, &connection{w: w})
		}
	}
	for _, name := range events.ServiceNames() {
		for _, s := range w.services[name] {
			s.start()
		}
	}
}

// discoveryConfig is the default configuration, for seeds with shorter times: slots and nodes are
// quarantined easily, and come back soon.
func (w *world) discoveryConfig() discovery.Config {
	c := discovery.DefaultConfig()
	if w.sc.exact {
		return c
	}
	c.Quarantine = discovery.Quarantine{
		Charges: 2, Losses: 2, Window: time.Minute, First: time.Second, Most: 8 * time.Second, Decay: 30 * time.Second,
	}
	return c
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
