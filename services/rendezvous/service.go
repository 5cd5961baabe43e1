package rendezvous

import (
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

// New returns one replica of the rendezvous. It does no I/O. observe may be nil.
func New(ports events.Ports, observe func(controller.Observation)) (*controller.Host[round.State], error) {
	known := newRecords(ports)
	return controller.New(controller.Options[round.State]{
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
		Route:     route,
		Reconcile: known.reconcile,
		Tasks:     []controller.Task{controller.Follow(&known.nodes), controller.Follow(&known.jobs), controller.Follow(&known.rounds)},
		Observe:   observe,
	})
}

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
