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
	"github.com/regroup-io/regroup/services/controller/controllertest"
)

// TestManyFailingJobsTakeNoSlots submits 18 jobs of one worker that fail, by one user and by 18, on
// three nodes. One user's jobs cost no slot for long; those of many cost at most half of the slots.
func TestManyFailingJobsTakeNoSlots(t *testing.T) {
	for name, users := range map[string]int{"of one user": 1, "of many": 1 << 30} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bus := memory.New()
				p := bus.Ports()
				stop := start(t, bus.Client().Ports())
				defer stop()
				synctest.Wait()
				nodes := []ident.NodeID{"node-a", "node-b", "node-c"}
				var ends []func()
				for _, n := range nodes {
					beating, answering := agent(t, p, n, "A")
					ends = append(ends, beating, answering)
				}
				time.Sleep(time.Second)
				for attempt := range 4 {
					for i := range 18 {
						n := nodes[i/2%len(nodes)]
						id := ident.JobID(fmt.Sprintf("job%d-%04d", i, attempt))
						controllertest.PublishEvent(t, p, events.Event{ID: string(id), Source: events.ServiceSource(events.ServiceRegistry), Entity: string(id), Time: time.Now(), Body: events.JobFailureCounted{
							Job: id, Place: ident.Place{Node: n, Slot: ident.Slot(i % 2)}, Agent: "A",
							Worker: ident.Incarnation(fmt.Sprintf("W%d-%d", i, attempt)), Kind: events.FailureCrash, Detail: "exit code 3", By: fmt.Sprint("/client/user", i%users),
						}})
						time.Sleep(130 * time.Millisecond)
					}
				}
				for _, n := range nodes { // an agent repeats its hello
					beating, answering := agent(t, p, n, "A")
					ends = append(ends, beating, answering)
				}
				time.Sleep(time.Second)
				all, open := 0, 0
				var why []string
				for _, n := range nodes {
					v := controllertest.View[events.NodeView](t, p, events.BucketNodes, string(n))
					all, open = all+v.AllocatableSlots(), open+v.SchedulableSlots()
					for _, q := range v.QuarantinedSlots {
						why = append(why, fmt.Sprintf("%s/%d: %s", n, q.Slot, q.Reason))
					}
				}
				if open < all/2 || (users == 1 && open != all) {
					t.Errorf("%d of %d slots take work: %s", open, all, strings.Join(why, "; "))
				}
				for _, end := range ends {
					end()
				}
			})
		})
	}
}
