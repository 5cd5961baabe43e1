// Package rendezvous decides which workers form a generation of a job, and with which ranks.
//
// There is one round per job; package round has its states and rules. Any number of replicas may
// run: compare-and-set on the job's document lets one of them win.
//
// The service reads facts of four families: of placement, placement.set; of worker, worker.exited
// and worker.ready; of node, node.joined, suspected, recovered, draining, lost and left; of job,
// job.respawned, respawn-denied, stalled, finishing, stopping, succeeded, failed, stopped and
// removed, and job.submitted for jobs with self-registered nodes.
//
// It answers the requests join, joins and peers, and for such jobs enter, exit and close. It
// receives notices of failures, and heartbeats, which show that a node has missed a launch. It
// sends the signals abandon and rendezvous-status.
//
// It writes the facts round.opened, round.sealed, round.missed, round.participants-set and
// round.closed, and is the only writer of launches.
package rendezvous

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
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
func New(ports broker.Ports, observe func(controller.Observation)) (*controller.Host[round.State], error) {
	known := newRecords(ports)
	return controller.New(controller.Options[round.State]{
		Service: events.ServiceRendezvous,
		Machine: round.Machine{},
		Bucket:  events.BucketRounds,
		Ports:   ports,
		Consumers: []broker.Consumer{{
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
		Memory: controller.Memory[round.State]{
			Recall: round.Machine{}.Recall, Complete: recalled(ports.Log),
			Family: []events.Family{events.FamilyRound, events.FamilyPlacement, events.FamilyWorker, events.FamilyJob},
			Over:   func(s round.State) bool { return s.View.State == events.RoundStateClosed },
		},
		Tasks:    []controller.Task{controller.Follow(&known.nodes), controller.Follow(&known.jobs)},
		Watchers: []controller.Watcher{controller.Own(&known.rounds)},
		Observe:  observe,
	})
}

// recalled completes a rendezvous that was made of facts by what its launches say.
func recalled(log broker.Log) func(context.Context, round.State) (round.State, error) {
	return func(ctx context.Context, s round.State) (round.State, error) {
		m, err := log.Last(ctx, events.StreamLaunches, events.LaunchSubject("*", s.View.Job))
		if err != nil && !errors.Is(err, errcode.ErrNotFound) {
			return s, errcode.Errorf(errcode.Of(err), "rendezvous %s: read its launches: %w", s.View.Job, err)
		}
		var newest events.Launch
		if err == nil {
			if newest, err = bodies.Decode[events.Launch](m.Data); err != nil {
				return s, errcode.Errorf(errcode.Of(err), "rendezvous %s: its newest launch: %w", s.View.Job, err)
			}
		}
		return s.Recalled(rand.Text(), newest.Revision), nil
	}
}

// decodeNotice decodes a message on a notice subject. The rendezvous ignores its own messages.
func decodeNotice(data []byte) (events.Body, error) {
	e, err := bodies.Decode[events.NoticeEnvelope](data)
	switch {
	case err != nil:
		return nil, err
	case e.Notice != nil:
		return *e.Notice, nil
	}
	return e, nil
}
