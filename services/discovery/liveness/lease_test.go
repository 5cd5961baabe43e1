package liveness_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/discovery/liveness"
)

// TestALostNodesLeaseOutlastsEachGrant: whatever the size of the fleet that the replicas know,
// which may be twice as large for one as for another, a place is given away after the lease.
func TestALostNodesLeaseOutlastsEachGrant(t *testing.T) {
	lease := liveness.Lease{Restart: 3 * time.Second, InPlace: time.Minute}
	m := liveness.Machine{Lease: lease}
	for _, nodes := range []int{1, 400, 500, 999, 1000, 2500, 2501, 5000, 20_000} {
		s, _ := m.Step(m.New("node-a"), events.Input{Body: events.NodeHello{Node: "node-a", Incarnation: "A", Slots: 1}}, noon)
		s, _ = m.Step(s, events.Input{Body: events.HeartbeatMissed{Node: "node-a", Incarnation: "A"}}, noon)
		s, _ = m.Step(s, events.Input{Body: events.HeartbeatMissed{Node: "node-a", Incarnation: "A", Failed: true, Silence: spec.Duration(2 * time.Second), FleetSize: nodes}}, noon)
		granted := lease.ForFleet(2 * nodes)
		ends := s.View.LeaseEnds
		if heard := noon.Add(-2 * time.Second); !ends.Restart.After(heard.Add(granted.Restart)) || !ends.InPlace.After(heard.Add(granted.InPlace)) {
			t.Errorf("%d nodes: the lease ends at %v, granted were %v", nodes, ends, granted)
		}
	}
}

// TestOnlyAReplicaThatKnowsGrantsLeases: times are in milliseconds after its newest check.
func TestOnlyAReplicaThatKnowsGrantsLeases(t *testing.T) {
	who := liveness.Incarnation{Node: "node-a", Incarnation: "A"}
	for _, c := range []struct {
		name    string
		change  func(a *liveness.HeartbeatTracker)
		after   time.Duration
		who     liveness.Incarnation
		granted bool
	}{
		{"a ready node", func(*liveness.HeartbeatTracker) {}, 100, who, true},
		{"an older incarnation", func(*liveness.HeartbeatTracker) {}, 100, liveness.Incarnation{Node: "node-a", Incarnation: "0"}, false},
		{"an unknown node", func(*liveness.HeartbeatTracker) {}, 100, liveness.Incarnation{Node: "node-b", Incarnation: "A"}, false},
		{"a suspected node", func(a *liveness.HeartbeatTracker) { a.Update(view(events.NodeStateSuspected, "A"), noon) }, 100, who, false},
		{"a lost node", func(a *liveness.HeartbeatTracker) { a.Update(view(events.NodeStateLost, "A"), noon) }, 100, who, false},
		{"a replica that is cut off", func(a *liveness.HeartbeatTracker) { a.Connected(false, noon) }, 100, who, false},
		{"a replica that was paused", func(*liveness.HeartbeatTracker) {}, 2000, who, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := ages()
			a.Update(view(events.NodeStateReady, "A"), noon)
			a.Check(noon)
			c.change(&a)
			granted, lost, _ := a.Renew(c.who, events.Link{}, noon.Add(c.after*time.Millisecond))
			if got := fmt.Sprint(granted, lost); got != fmt.Sprint(c.granted, 0) {
				t.Errorf("got %s, want %v 0", got, c.granted)
			}
		})
	}
}
