package liveness_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/services/discovery/liveness"
)

// TestClockJumps: three nodes send heartbeats, and one of them dies at 10 s. Whatever the replica's
// clock does at 5 s and at 11 s, no other node is suspected, and the dead one is detected. Times of
// a running process are monotonic and do not jump; the times here are those after a suspended
// machine, or of a platform without a monotonic clock.
func TestClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{0, time.Hour, -time.Hour, 2 * time.Second, -2 * time.Second, 40 * 365 * 24 * time.Hour, 200 * time.Millisecond, -200 * time.Millisecond} {
		t.Run(fmt.Sprint(jump), func(t *testing.T) {
			a := liveness.HeartbeatTracker{SuspectAfter: 1500 * time.Millisecond, LostAfter: 3 * time.Second, Gap: 750 * time.Millisecond}
			nodes := []ident.NodeID{"node-a", "node-b", "node-c"}
			now := noon.Round(0)
			for _, n := range nodes {
				a.Update(events.NodeView{Node: n, Incarnation: "A", State: events.NodeStateReady}, now)
			}
			var accused []string
			asked := time.Duration(0)
			for at := time.Duration(0); at < 20*time.Second; at += 100 * time.Millisecond {
				if at == 5*time.Second || at == 11*time.Second {
					now = now.Add(jump)
				}
				if at%(500*time.Millisecond) == 0 {
					for _, n := range nodes {
						if n != "node-c" || at < 10*time.Second {
							a.Observe(liveness.Incarnation{Node: n, Incarnation: "A"}, broker.Link{}, now)
						}
					}
				}
				suspect, ask := a.Check(now)
				for _, who := range append(suspect, ask...) {
					accused = append(accused, string(who.Node))
				}
				if len(ask) > 0 && asked == 0 {
					asked = at
				}
				now = now.Add(100 * time.Millisecond)
			}
			if slices.ContainsFunc(accused, func(n string) bool { return n != "node-c" }) {
				t.Errorf("accused: %s", strings.Join(accused, " "))
			}
			// At most a full timeout after the jump.
			if asked < 12*time.Second || asked > 11*time.Second+3*time.Second+100*time.Millisecond {
				t.Errorf("the dead node was to be pinged at %s", asked)
			}
		})
	}
}
