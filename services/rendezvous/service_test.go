package rendezvous

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/controller/controllertest"
)

// TestLaunchNamesItsReplica: an agent can address the replica that published its launch.
func TestLaunchNamesItsReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		s, err := New(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		synctest.Wait()
		place := ident.Place{Node: "node-a"}
		controllertest.PublishEvent(t, p, events.Event{ID: "p1", Source: "/test", Entity: string(job), Number: 1, Body: events.PlacementSet{
			Job: job, Spec: spec.Job{Name: "demo", Command: []string{"x"}}.WithDefaults(), Workers: spec.Workers{Min: 1, Max: 1}, Places: []ident.Place{place},
		}})
		synctest.Wait()
		m, err := p.Log.Last(t.Context(), events.StreamLaunches, events.LaunchSubject("node-a", job))
		if err != nil {
			t.Fatal(err)
		}
		l, err := bodies.Decode[events.Launch](m.Data)
		if err != nil || l.Via == "" {
			t.Fatalf("launch %+v names no replica: %v", l, err)
		}
		ask, err := bodies.Encode(events.MemberJoins{Job: job, Joins: []events.MemberJoin{{Job: job, Place: place, Incarnation: "W1", Agent: "A", Attempt: 1, Address: "10.0.0.1:5000"}}})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := p.Calls.Call(t.Context(), events.ReplicaSubject(events.ServiceRendezvous, events.VerbJoins, l.Via), ask)
		if err != nil {
			t.Fatal(err)
		}
		got, err := bodies.Decode[events.MemberAnswers](answer)
		if err != nil || len(got.Answers) != 1 || got.Answers[0].Refused != "" || got.Answers[0].Proposed != 1 {
			t.Errorf("answers %+v, %v", got, err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
