package discovery_test

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/services/controller/controllertest"
)

// TestADestroyedNodeIsMadeOfItsFacts: one that serves goes on, one in quarantine stays there, and
// one that was lost is not back.
func TestADestroyedNodeIsMadeOfItsFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stop := start(t, bus.Client().Ports())
		synctest.Wait()
		beatA, pongA := agent(t, p, "node-a", "A1")
		beatB, pongB := agent(t, p, "node-b", "A1")
		controllertest.PublishEvent(t, p, events.Event{ID: "q1", Source: "/client", Body: events.NodeQuarantine{Node: "node-b", For: 3600e9, Reason: "by hand"}})
		beatC, pongC := agent(t, p, "node-c", "A1")
		time.Sleep(time.Second)
		beatC()
		pongC()
		time.Sleep(time.Minute)
		facts := controllertest.Facts(t, p, func(e events.Event) string { return e.Entity + " " + e.Body.Type().Kind() })
		for _, n := range []string{"node-a", "node-b", "node-c"} {
			before := controllertest.View[events.NodeView](t, p, events.BucketNodes, n)
			controllertest.Overwrite(t, p, events.BucketNodes, n, controllertest.Answer)
			synctest.Wait()
			after := controllertest.View[events.NodeView](t, p, events.BucketNodes, n)
			if after.State != before.State || after.Incarnation != before.Incarnation || after.Slots != before.Slots || after.Draining != before.Draining ||
				!reflect.DeepEqual(after.Quarantine, before.Quarantine) {
				t.Errorf("%s is %+v, and was %+v", n, after, before)
			}
		}
		time.Sleep(time.Minute)
		if now := controllertest.Facts(t, p, func(e events.Event) string { return e.Entity + " " + e.Body.Type().Kind() }); now != facts {
			t.Errorf("facts are %s\nand were %s", now, facts)
		}
		beatA()
		pongA()
		beatB()
		pongB()
		stop()
	})
}
