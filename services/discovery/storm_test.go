package discovery_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/controller/controllertest"
)

// TestAllReplicasRestartTogether: all replicas end together and return after a while, repeatedly;
// in one of the gaps a node dies. It is detected, and no other node is suspected even briefly.
func TestAllReplicasRestartTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		const nodes = 12
		begin := func() (stop func()) {
			a, b, c := start(t, bus.Client().Ports()), start(t, bus.Client().Ports()), start(t, bus.Client().Ports())
			return func() { a(); b(); c() }
		}
		stop := begin()
		synctest.Wait()
		var agents []func()
		for i := range nodes {
			beating, answering := agent(t, p, ident.NodeID(fmt.Sprintf("node-%02d", i)), "A")
			agents = append(agents, beating, answering)
		}
		joined := strings.TrimSuffix(strings.Repeat("joined ", nodes), " ")
		kinds := func() string {
			return strings.ReplaceAll(controllertest.Facts(t, p, func(e events.Event) string { return e.Body.Type().Kind() }), ",", "")
		}
		for _, away := range []time.Duration{time.Millisecond, 2 * time.Second, time.Minute, 5 * time.Minute} {
			stop()
			time.Sleep(away)
			if away == 5*time.Minute {
				agents[0]()
				agents[1]()
			}
			stop = begin()
			time.Sleep(20 * time.Second)
			if away < 5*time.Minute && kinds() != joined {
				t.Fatalf("after %s without discovery: %s", away, kinds())
			}
		}
		if got := kinds(); got != joined+" suspected lost" {
			t.Errorf("published %s", got)
		}
		for _, end := range agents[2:] {
			end()
		}
		stop()
	})
}

// TestNodeReturns as the same incarnation after a silence, as a new one, and as a new one that
// nobody had missed.
func TestNodeReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stop := start(t, bus.Client().Ports())
		synctest.Wait()
		beatB, pongB := agent(t, p, "node-b", "A") // a neighbour that is not affected
		beat, pong := agent(t, p, "node-a", "A")
		silence := func() {
			beat()
			pong()
			time.Sleep(10 * time.Second)
		}
		silence()
		beat, pong = agent(t, p, "node-a", "A")
		time.Sleep(10 * time.Second)
		silence()
		beat, pong = agent(t, p, "node-a", "B")
		time.Sleep(10 * time.Second)
		beat()
		pong()
		beat, pong = agent(t, p, "node-a", "C")
		time.Sleep(10 * time.Second)
		wantPublished(t, p, "node-b joined, node-a joined, node-a suspected, node-a lost, node-a joined, node-a suspected, node-a lost, node-a joined, "+
			"node-a lost, node-a quarantined, node-a joined")
		// The third loss within ten minutes quarantines it; after a minute it may be used again.
		if v := controllertest.View[events.NodeView](t, p, events.BucketNodes, "node-a"); v.Schedulable() || v.State != events.NodeStateReady {
			t.Errorf("view %+v", v)
		}
		time.Sleep(time.Minute)
		if v := controllertest.View[events.NodeView](t, p, events.BucketNodes, "node-a"); !v.Schedulable() {
			t.Errorf("view %+v", v)
		}
		for _, end := range []func(){beat, pong, beatB, pongB, stop} {
			end()
		}
	})
}

// TestFailuresBecomeQuarantine: failures that discovery missed while it was down do not quarantine
// a slot that fails now and then.
func TestFailuresBecomeQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stopA, stopB := start(t, bus.Client().Ports()), start(t, bus.Client().Ports())
		synctest.Wait()
		beat, pong := agent(t, p, "node-a", "A")
		charge := func(worker string, slot ident.Slot) {
			controllertest.PublishEvent(t, p, events.Event{ID: "c-" + worker, Source: "/regroup/registry", Entity: "demo-0001", Number: 1, Body: events.JobFailureCounted{
				Job: "demo-0001", Place: ident.Place{Node: "node-a", Slot: slot}, Worker: ident.Incarnation(worker), Agent: "A",
				Kind: events.FailureSignal, Detail: "killed by signal 9 (SIGKILL)",
			}})
		}
		node := func() events.NodeView {
			time.Sleep(time.Second)
			return controllertest.View[events.NodeView](t, p, events.BucketNodes, "node-a")
		}
		for _, worker := range []string{"W1", "W2", "W2", "W3"} {
			charge(worker, 0)
		}
		if v := node(); len(v.QuarantinedSlots) != 1 || v.SchedulableSlots() != 1 || v.QuarantinedSlots[0].Until.Sub(v.QuarantinedSlots[0].Since) != time.Minute {
			t.Errorf("after three failures: %+v", v)
		}
		controllertest.PublishEvent(t, p, events.Event{ID: "r1", Source: "/client", Entity: "node-a", Body: events.NodeRelease{Node: "node-a"}})
		if v := node(); v.SchedulableSlots() != 2 {
			t.Errorf("after the release: %+v", v)
		}
		slot := ident.Slot(1)
		controllertest.PublishEvent(t, p, events.Event{ID: "q1", Source: "/client", Entity: "node-a", Body: events.NodeQuarantine{
			Node: "node-a", Slot: &slot, For: spec.Duration(10 * time.Second), Reason: "test",
		}})
		if v := node(); v.SchedulableSlots() != 1 {
			t.Errorf("after the quarantine by hand: %+v", v)
		}
		time.Sleep(10 * time.Second)
		if v := node(); v.SchedulableSlots() != 2 {
			t.Errorf("when it is over: %+v", v)
		}

		stopA()
		stopB()
		for i := range 4 {
			charge(fmt.Sprint("X", i), 1)
			time.Sleep(9 * time.Minute)
		}
		stopA = start(t, bus.Client().Ports())
		if v := node(); len(v.QuarantinedSlots) > 0 {
			t.Errorf("four failures in 36 minutes: %+v", v)
		}
		for _, end := range []func(){beat, pong, stopA} {
			end()
		}
	})
}
