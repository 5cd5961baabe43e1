package scheduler_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/services/controller/controllertest"
)

// TestADestroyedPoolKeepsThePlaces of all jobs, and goes on to give out what is free.
func TestADestroyedPoolKeepsThePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stop := start(t, bus.Client().Ports())
		for _, n := range []string{"node-a", "node-b"} {
			controllertest.Record(t, p, events.BucketNodes, n, 1, events.NodeView{Node: ident.NodeID(n), Incarnation: "A", Slots: 2, State: events.NodeStateReady})
			fact(t, p, n, 1, events.NodeJoined{NodeFact: node(n, 2)})
		}
		time.Sleep(time.Second)
		submit := func(id string) {
			controllertest.Record(t, p, events.BucketJobs, id, 1, events.JobView{Job: ident.JobID(id), Spec: jobSpec, State: events.JobStateWaiting, Submitted: time.Now()})
			fact(t, p, id, 1, events.JobSubmitted{Job: ident.JobID(id), Spec: jobSpec})
			time.Sleep(time.Second)
		}
		submit("demo-0000")
		submit("demo-0001")
		submit("demo-0002")
		const want = "demo-0000[node-a/0 node-a/1 node-b/0] demo-0001[node-b/1] demo-0002[]"
		wantPool(t, p, want)
		controllertest.Overwrite(t, p, events.BucketPlacements, events.PoolKey, controllertest.Answer)
		time.Sleep(time.Second)
		wantPool(t, p, want)
		// The places of a job that has ended meanwhile go to those that wait.
		stop()
		controllertest.Overwrite(t, p, events.BucketPlacements, events.PoolKey, controllertest.Answer)
		fact(t, p, "demo-0000", 2, events.JobSucceeded{JobEnd: events.JobEnd{Job: "demo-0000"}})
		controllertest.Record(t, p, events.BucketJobs, "demo-0000", 2, events.JobView{Job: "demo-0000", Spec: jobSpec, State: events.JobStateSucceeded})
		stop = start(t, bus.Client().Ports())
		time.Sleep(30 * time.Second)
		wantPool(t, p, "demo-0001[node-a/1 node-b/0 node-b/1] demo-0002[node-a/0]")
		stop()
	})
}
