package registry

import (
	"context"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/registry/job"
)

// The controller finds it by type assertion: without the check a renamed method would go unnoticed.
var _ controller.Shrinker[job.State] = job.State{}

// Options are the dependencies of a replica.
type Options struct {
	Ports    events.Ports
	Config   Config
	Instance string // name of this replica, for logs
	Observe  func(controller.Observation)
}

// Service is one replica of the registry.
type Service struct {
	host *controller.Host[job.State]
}

// New validates the options. It does no I/O.
func New(o Options) (*Service, error) {
	if err := o.Config.Validate(); err != nil {
		return nil, err
	}
	hear := &listener{ports: o.Ports, ages: NewAges()}
	known := newRecords(o.Ports.Buckets)
	host, err := controller.New(controller.Options[job.State]{
		Service: events.ServiceRegistry,
		Machine: job.Machine{},
		Bucket:  events.BucketJobs,
		Ports:   o.Ports,
		Consumers: []events.Consumer{
			{Stream: events.StreamCommands, Durable: "registry-cmd", Subjects: []string{events.AllJobCommands}},
			{Stream: events.StreamFacts, Durable: "registry-evt", Subjects: []string{
				events.FamilySubject(events.FamilyWorker, "*"), events.FamilySubject(events.FamilyRound, "*"),
				events.FamilySubject(events.FamilyPlacement, "*"), events.FamilySubject(events.FamilyNode, "*"),
			}},
		},
		Route: route,
		Reconcile: func(ctx context.Context, emit controller.Emit) error {
			return known.reconcile(ctx, emit)
		},
		Tasks:   []func(context.Context, controller.Emit) error{hear.records, hear.steps, hear.answer, hear.connection, hear.look, known.followNodes, known.followJobs},
		Reject:  reject,
		Observe: o.Observe,
	})
	if err != nil {
		return nil, err
	}
	return &Service{host: host}, nil
}

// ControllerOptions returns the options of the service's controller. The simulation runs it in
// virtual time.
func (s *Service) ControllerOptions() controller.Options[job.State] { return s.host.Options() }

// Run serves until ctx ends, which is no error.
func (s *Service) Run(ctx context.Context) error { return s.host.Run(ctx) }

// reject returns the fact that tells a client why its command was refused before it was routed to a
// job.
func reject(e events.Event, why error) (events.Fact, bool) {
	b := events.JobRejected{Job: jobOf(e), Command: e.ID, Code: events.CodeOf(why), Errors: events.BoundedFieldErrors(why), Expired: controller.Expired(e, why)}
	return events.Fact{Body: b, Entity: string(b.Job), Cause: e.ID, Trace: e.Trace}, true
}

// jobOf returns the job that a command is about, or "" if it cannot be decoded.
func jobOf(e events.Event) events.JobID {
	var id events.JobID
	switch b := e.Body.(type) {
	case events.JobSubmit:
		id = events.JobIDFrom(b.Spec.Name, e.Source, e.ID)
	case events.JobScale:
		id = b.Job
	case events.JobStop:
		id = b.Job
	case events.JobRemove:
		id = b.Job
	}
	if id.Check() != nil {
		return ""
	}
	return id
}
