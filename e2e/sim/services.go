package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
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

func (w *world) buildServices(m mutation) {
	w.mutant = m
	for n, add := range []func(i int, side *connection){ // in the order of events.Services
		func(i int, side *connection) {
			v := &watcher{w: w}
			o := must(discovery.New(side.ports(), w.discoveryConfig(), nil)).Options()
			others := o.Others
			o.Others = func(node string, known func() []string, state func(string) (liveness.State, bool)) any {
				k := others(node, known, state).(liveness.Known)
				k.SeenSince = func(who liveness.Incarnation, silence time.Duration) bool {
					return v.tracker.SeenSince(who, silence, w.now)
				}
				return k
			}
			v.r = addReplica(w, i, side, o, m.nodes)
			v.r.tracker = v
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
			l.r.tracker = l
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

// mutantLog is the log of a controller with a bug.
type mutantLog struct {
	broker.Log
	mutant mutation
}

func (l mutantLog) Last(ctx context.Context, stream, subject string) (broker.Stored, error) {
	m, err := l.Log.Last(ctx, stream, subject)
	if err == nil && l.mutant.trustful {
		return broker.Stored{}, errcode.Errorf(errcode.NotFound, "nothing on %s", subject)
	}
	return m, err
}

// mutantBuckets are the buckets of a controller with a bug.
type mutantBuckets struct {
	broker.Buckets
	w *world
}

func (b mutantBuckets) Bucket(name string) broker.Bucket {
	return mutantBucket{b.Buckets.Bucket(name), name, b.w}
}

type mutantBucket struct {
	broker.Bucket
	name string
	w    *world
}

func (b mutantBucket) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	value, revision, err := b.Bucket.Load(ctx, key)
	return b.w.stripped(value), revision, err
}

func (b mutantBucket) Save(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	at, err := b.Bucket.Save(ctx, key, value, revision)
	for b.w.mutant.careless && errcode.Of(err) == errcode.Conflict {
		_, revision, _ = b.w.broker.Ports().Buckets.Bucket(b.name).Load(ctx, key) // absent = 0
		at, err = b.Bucket.Save(ctx, key, value, revision)
	}
	return at, err
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
