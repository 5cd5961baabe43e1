package sim

import (
	"context"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/discovery/liveness"
	"github.com/regroup-io/regroup/services/registry/job"
	"github.com/regroup-io/regroup/services/rendezvous/round"
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

// mutantLog is the log of a controller with a bug.
type mutantLog struct {
	events.Log
	mutant mutation
}

func (l mutantLog) Last(ctx context.Context, stream, subject string) (events.Stored, error) {
	m, err := l.Log.Last(ctx, stream, subject)
	if err == nil && l.mutant.trustful {
		return events.Stored{}, events.Errorf(events.NotFound, "nothing on %s", subject)
	}
	return m, err
}

// mutantBuckets are the buckets of a controller with a bug.
type mutantBuckets struct {
	events.Buckets
	w *world
}

func (b mutantBuckets) Bucket(name string) events.Bucket {
	return mutantBucket{b.Buckets.Bucket(name), name, b.w}
}

type mutantBucket struct {
	events.Bucket
	name string
	w    *world
}

func (b mutantBucket) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	value, revision, err := b.Bucket.Load(ctx, key)
	return b.w.stripped(value), revision, err
}

func (b mutantBucket) Save(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	at, err := b.Bucket.Save(ctx, key, value, revision)
	for b.w.mutant.careless && events.CodeOf(err) == events.Conflict {
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
