package scheduler

import (
	"context"

	"github.com/regroup-io/regroup/events"
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

// Options are the dependencies of a replica.
type Options struct {
	Ports    events.Ports
	Config   Config
	Instance string // name of this replica, for logs
	Observe  func(controller.Observation)
}

// Service is one replica of the scheduler.
type Service struct {
	o    Options
	host *controller.Host[plan.State]

	jobs  document.Reader[events.JobHead]
	nodes document.Reader[events.NodeView]
}

// New validates the options. It does no I/O.
func New(o Options) (*Service, error) {
	if err := o.Config.Validate(); err != nil {
		return nil, err
	}
	s := &Service{o: o}
	s.jobs.Bucket, s.nodes.Bucket = o.Ports.Buckets.Bucket(events.BucketJobs), o.Ports.Buckets.Bucket(events.BucketNodes)
	var err error
	s.host, err = controller.New(controller.Options[plan.State]{
		Service: events.ServiceScheduler,
		Machine: plan.Machine{},
		Bucket:  events.BucketPlacements,
		Ports:   o.Ports,
		Consumers: []events.Consumer{{
			Stream:  events.StreamFacts,
			Durable: events.ServiceScheduler,
			Subjects: []string{
				events.FamilySubject(events.FamilyJob, "*"),
				events.FamilySubject(events.FamilyNode, "*"),
				events.FamilySubject(events.FamilyIncident, "*"),
			},
		}},
		Route:     route,
		Reconcile: s.reconcile,
		Complete:  s.complete,
		Tasks:     []func(context.Context, controller.Emit) error{s.followNodes, s.followJobs},
		Observe:   o.Observe,
	})
	return s, err
}

// ControllerOptions returns the options of the service's controller. The simulation runs it in
// virtual time.
func (s *Service) ControllerOptions() controller.Options[plan.State] { return s.host.Options() }

// Run serves until ctx ends, which is no error.
func (s *Service) Run(ctx context.Context) error { return s.host.Run(ctx) }

// route routes all inputs that the plan handles to the pool.
func route(in events.Input, _ func() []string, state func(string) (plan.State, bool)) []string {
	if s, ok := state(events.PoolKey); ok && in.ID == "" && s.Knows(in) {
		return nil // a record that was read again
	}
	switch in.Body.(type) {
	case events.JobSubmitted, events.JobScaled, events.JobSucceeded, events.JobFailed, events.JobStopped, events.JobRemoved,
		events.IncidentOpened, events.IncidentClosed, events.NodeEvent:
		return []string{events.PoolKey}
	}
	return nil
}
