// Package scheduler decides which slots a job gets.
//
//	job.submitted, scaled, succeeded, failed, stopped ─► ┌──────┐
//	node.joined, suspected, recovered, lost, left,    ─► │ plan │ ─► placement.set, waiting, released
//	     draining, quarantined, released, changed        └──────┘ ─► bucket placements, one document: the pool
//	incident.opened, closed (only for their trace)      ────▲
//
// States of a job in the pool: waiting, placed, below min, released (drawn in package plan, with
// the rules).
//
// It reads the facts of the job, node and incident families, and, at the start and every 10 s, the
// buckets jobs and nodes, to replace missed facts. It is the only writer of the facts of the
// placement family.
package scheduler

import (
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// The controller finds these by type assertion: without the checks a renamed method would go
// unnoticed.
var (
	_ controller.Batcher[plan.State] = plan.Machine{}
	_ controller.Packer[plan.State]  = plan.State{}
)

// records are those of the other services.
type records struct {
	log   broker.Log
	pool  broker.Bucket
	jobs  document.Reader[events.JobHead]
	nodes document.Reader[events.NodeView]
}

// New returns one replica of the scheduler. It does no I/O. observe may be nil.
func New(ports broker.Ports, observe func(controller.Observation)) (*controller.Host[plan.State], error) {
	b := ports.Buckets
	known := &records{log: ports.Log, pool: b.Bucket(events.BucketPlacements)}
	known.jobs.Bucket, known.nodes.Bucket = b.Bucket(events.BucketJobs), b.Bucket(events.BucketNodes)
	return controller.New(controller.Options[plan.State]{
		Service: events.ServiceScheduler,
		Machine: plan.Machine{},
		Bucket:  events.BucketPlacements,
		Ports:   ports,
		Consumers: []broker.Consumer{{
			Stream:  events.StreamFacts,
			Durable: events.ServiceScheduler,
			Subjects: []string{
				events.FamilySubject(events.FamilyJob, "*"),
				events.FamilySubject(events.FamilyNode, "*"),
				events.FamilySubject(events.FamilyIncident, "*"),
			},
		}},
		Route:     route,
		Reconcile: known.reconcile,
		Complete:  known.complete,
		Memory:    controller.Memory[plan.State]{Rebuild: known.rebuild},
		Tasks:     []controller.Task{controller.Follow(&known.nodes), controller.Follow(&known.jobs)},
		Observe:   observe,
	})
}

// route routes all inputs that the plan handles to the pool.
func route(in events.Input, _ func() []string, state func(string) (plan.State, bool)) []string {
	if s, ok := state(events.PoolKey); ok && in.ID == "" && s.Knows(in) {
		return nil // a record that was read again
	}
	if !controller.Reads(events.ServiceScheduler, in.Body) {
		return nil
	}
	return []string{events.PoolKey}
}
