package jetstream_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/jetstream"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
)

// TestAStoppedBrokerIsSeen: the leaders of the streams say that its copies are offline, how far
// they are behind, and that they are current again after it has come back.
func TestAStoppedBrokerIsSeen(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.Three(t)
	away := (s.Leader(t, events.StreamFacts) + 1) % 3
	name := s.Options[away].Name
	copies := func() map[string]broker.ReplicaState {
		all := map[string]broker.ReplicaState{}
		for _, stream := range s.Ports.Brokers.Streams(jetstreamtest.Within(t, jetstreamtest.Patience)) {
			if stream.Unknown != "" || len(stream.Replicas) != 3 {
				return nil
			}
			all[stream.Stream] = stream.Replicas[slices.IndexFunc(stream.Replicas, func(r broker.ReplicaState) bool { return r.Broker == name })]
		}
		return all
	}
	every := func(ok func(broker.ReplicaState) bool) func() bool {
		return func() bool {
			n := 0
			for _, r := range copies() {
				if ok(r) {
					n++
				}
			}
			return n == len(events.Streams())
		}
	}
	healthy := func(r broker.ReplicaState) bool { return r.Current && !r.Offline && r.Lag == 0 }
	jetstreamtest.Await(t, "every copy is current", every(healthy))

	s.Stop(away)
	jetstreamtest.Await(t, "every copy of "+name+" is offline", every(func(r broker.ReplicaState) bool { return r.Offline }))
	const messages = 20
	for i := range messages {
		jetstreamtest.Retry(t, "publish", func(ctx context.Context) error {
			_, err := s.Ports.Log.Publish(ctx, broker.Message{Subject: events.FactSubject("dev.regroup.job.a.v1", "job-a"), ID: fmt.Sprint(i)})
			return err
		})
	}
	jetstreamtest.Await(t, "its copy of the facts is behind, and not current", func() bool {
		r := copies()[events.StreamFacts]
		return r.Offline && !r.Current && r.Lag >= messages && r.SeenMS != nil && *r.SeenMS > 0
	})

	s.Start(t, away)
	jetstreamtest.Await(t, "every copy is current again", every(healthy))
}

// TestReadersSeeBacklogs: those who read may ask about the consumers of the services. Who may not
// is told so, and asks once.
func TestReadersSeeBacklogs(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	service := g.connect(t, g.issue(t, access.Role(events.ServiceScheduler), 0).Name)
	background(t, func(ctx context.Context) error {
		k := broker.Consumer{Stream: events.StreamFacts, Durable: events.ServiceScheduler, Subjects: []string{events.AllFacts}}
		return service.Ports().Log.Consume(ctx, k, func(d broker.Delivery) { d.Ack() })
	})
	facts := func(c *jetstream.Conn) broker.StreamState {
		all := c.Ports().Brokers.Streams(jetstreamtest.Within(t, jetstreamtest.Patience))
		return all[slices.Index(events.Streams(), events.StreamFacts)]
	}
	for _, r := range []access.Role{access.RoleClient, access.RoleViewer, access.RoleGateway} {
		c := g.connect(t, g.issue(t, r, 0).Name)
		jetstreamtest.Await(t, "the consumer is known to a "+string(r), func() bool {
			s := facts(c)
			return s.Unknown == "" && len(s.Consumers) == 1 && s.Consumers[0] == broker.ConsumerState{Consumer: events.ServiceScheduler, Service: events.ServiceScheduler}
		})
	}
	agent := g.connect(t, g.issue(t, access.RoleAgent, 0).Name)
	mayNot := func() bool {
		s := facts(agent)
		return s.Unknown == "" && len(s.Consumers) > 0 && !slices.ContainsFunc(s.Consumers, func(c broker.ConsumerState) bool { return !strings.Contains(c.Unknown, "may not") })
	}
	jetstreamtest.Await(t, "an agent sees that it may not know", mayNot)
	asks := func() int { return g.log.count("publish violation") }
	if asked := asks(); !mayNot() || asked == 0 || asks() != asked {
		t.Errorf("an agent has asked %d times, and then %d times", asked, asks())
	}
}
