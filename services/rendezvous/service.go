package rendezvous

import (
	"context"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/rendezvous/round"
)

// The controller finds these by type assertion: without the checks a renamed method would go
// unnoticed.
var (
	_ controller.Batcher[round.State]  = round.Machine{}
	_ controller.LaunchSource          = round.State{}
	_ controller.Packer[round.State]   = round.State{}
	_ controller.Shrinker[round.State] = round.State{}
)

// Options are the dependencies of the service.
type Options struct {
	Ports    events.Ports
	Instance string // names this replica in logs
	Observe  func(controller.Observation)
}

// Service is one replica of the rendezvous.
type Service struct {
	host *controller.Host[round.State]
}

// New validates the options. It does no I/O.
func New(o Options) (*Service, error) {
	ports := o.Ports
	known := newRecords(ports)
	host, err := controller.New(controller.Options[round.State]{
		Service: events.ServiceRendezvous,
		Machine: round.Machine{},
		Bucket:  events.BucketRounds,
		Ports:   ports,
		Consumers: []events.Consumer{{
			Stream: events.StreamFacts, Durable: "rendezvous-evt",
			Subjects: []string{
				events.FamilySubject(events.FamilyPlacement, "*"), events.FamilySubject(events.FamilyWorker, "*"),
				events.FamilySubject(events.FamilyNode, "*"), events.FamilySubject(events.FamilyJob, "*"),
			},
		}},
		Requests: []controller.Request{
			{Verb: events.VerbJoin, Decode: controller.As[events.MemberJoin]},
			{Verb: events.VerbJoins, Decode: controller.As[events.MemberJoins], Direct: true},
			{Verb: events.VerbPeers, Decode: controller.As[events.PeersQuery]},
			{Verb: events.VerbEnter, Decode: controller.As[events.NodeEnter]},
			{Verb: events.VerbExit, Decode: controller.As[events.NodeExit]},
			{Verb: events.VerbClose, Decode: controller.As[events.RendezvousClose]},
		},
		Signals: []controller.Subscription{
			{Subject: events.AllNotices, Queue: events.ServiceRendezvous, Decode: decodeNotice},
			{Subject: events.AllHeartbeats, Queue: events.ServiceRendezvous, Decode: controller.As[events.Heartbeat]},
		},
		Route: route,
		Reconcile: func(ctx context.Context, emit controller.Emit) error {
			return known.reconcile(ctx, emit)
		},
		Tasks:   []func(context.Context, controller.Emit) error{known.followNodes, known.followJobs, known.followRounds},
		Observe: o.Observe,
	})
	if err != nil {
		return nil, err
	}
	return &Service{host: host}, nil
}

// ControllerOptions returns the options of the service's controller. The simulation runs it in
// virtual time.
func (s *Service) ControllerOptions() controller.Options[round.State] { return s.host.Options() }

// Run serves until ctx ends.
func (s *Service) Run(ctx context.Context) error { return s.host.Run(ctx) }

// decodeNotice decodes a message on a notice subject. The rendezvous ignores its own messages.
func decodeNotice(data []byte) (events.Body, error) {
	e, err := events.DecodeBody[events.NoticeEnvelope](data)
	switch {
	case err != nil:
		return nil, err
	case e.Notice != nil:
		return *e.Notice, nil
	}
	return e, nil
}
