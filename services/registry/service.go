// Package registry is the service that tracks a job's workers and decides what follows from their
// state: continue, respawn a worker or not, end the job. The decisions are in the pure package job;
// this one connects them to the ports. Any number of replicas may run.
//
// Read: job commands; facts of the families worker, round, placement and node; progress signals, of
// which every replica receives all and keeps the newest in memory. Written: facts of the families
// job and incident. Bucket: jobs, one document per job.
package registry

import (
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/registry/job"
)

// The controller finds it by type assertion: without the check a renamed method would go unnoticed.
var _ controller.Shrinker[job.State] = job.State{}

// New returns one replica of the registry. It does no I/O. observe may be nil.
func New(ports broker.Ports, observe func(controller.Observation)) (*controller.Host[job.State], error) {
	hear := &listener{ports: ports, tracker: NewStepTracker()}
	known := newRecords(ports.Buckets)
	return controller.New(controller.Options[job.State]{
		Service: events.ServiceRegistry,
		Machine: job.Machine{},
		Bucket:  events.BucketJobs,
		Ports:   ports,
		Consumers: []broker.Consumer{
			{Stream: events.StreamCommands, Durable: "registry-cmd", Subjects: []string{events.AllJobCommands}},
			{Stream: events.StreamFacts, Durable: "registry-evt", Subjects: []string{
				events.FamilySubject(events.FamilyWorker, "*"), events.FamilySubject(events.FamilyRound, "*"),
				events.FamilySubject(events.FamilyPlacement, "*"), events.FamilySubject(events.FamilyNode, "*"),
			}},
		},
		Route:     route,
		Others:    hear.observe,
		Reconcile: known.reconcile,
		Memory: controller.Memory[job.State]{
			Recall: job.Machine{}.Recall, Over: job.State.Over,
			Family: []events.Family{events.FamilyJob, events.FamilyIncident, events.FamilyPlacement, events.FamilyRound, events.FamilyWorker},
		},
		Tasks:    []controller.Task{hear.steps, hear.answer, hear.connection, hear.look, controller.Follow(&known.nodes)},
		Watchers: []controller.Watcher{hear.records, controller.Own(&known.jobs)},
		Reject:   reject,
		Observe:  observe,
	})
}

// reject returns the fact that tells a client why its command was refused before it had a job.
func reject(e events.Event, why error) (events.Fact, bool) {
	b := events.JobRejected{Job: jobOf(e), Command: e.ID, Code: errcode.Of(why), Errors: errcode.BoundedFieldErrors(why), Expired: controller.Expired(e, why)}
	return events.Fact{Body: b, Entity: string(b.Job), Cause: e.ID, Trace: e.Trace}, true
}

// jobOf returns the job that a refused command is about, or "" if that must not be said in the
// facts of the job: it is not the submitter's, or who has sent it is not proved.
func jobOf(e events.Event) ident.JobID {
	id, _ := events.JobOf(e.Body)
	if _, ok := events.SubmitterOf(e.Source); ok {
		id = ""
	}
	if b, ok := e.Body.(events.JobSubmit); ok {
		id = ident.JobIDFrom(b.Spec.Name, e.Source, e.ID)
	}
	if id.Check() != nil {
		return ""
	}
	return id
}
