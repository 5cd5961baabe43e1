package liveness_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/discovery/liveness"
)

// TestLargeFleetSendsLessOften: its agents are asked to, and their timeouts are longer by one
// heartbeat.
func TestLargeFleetSendsLessOften(t *testing.T) {
	for fleetSize, want := range map[int]events.NodeWelcome{
		0:                         {Node: "node-a", Hello: spec.Duration(10 * time.Second)},
		liveness.LargeFleet - 1:   {Node: "node-a", Hello: spec.Duration(10 * time.Second)},
		liveness.LargeFleet:       largeFleetWelcome(1, 20, 3),
		5 * liveness.LargeFleet:   largeFleetWelcome(2, 60, 7),
		5*liveness.LargeFleet - 1: largeFleetWelcome(2, 50, 6),
	} {
		m := liveness.Machine{}
		_, d := m.Step(m.New("node-a"), events.Input{Body: events.NodeHello{Node: "node-a", Incarnation: "A", Slots: 1, FleetSize: fleetSize}}, noon)
		if d.Reply != want {
			t.Errorf("one of %d gets %+v, want %+v", fleetSize, d.Reply, want)
		}
	}
}

// largeFleetWelcome returns a welcome with these intervals, in seconds.
func largeFleetWelcome(heartbeat, hello, patience int) events.NodeWelcome {
	of := func(s int) spec.Duration { return spec.Duration(time.Duration(s) * time.Second) }
	return events.NodeWelcome{Node: "node-a", Heartbeat: of(heartbeat), Hello: of(hello), Patience: of(patience)}
}

// TestTimeouts of few nodes, of one in a large fleet, and of many at once.
func TestTimeouts(t *testing.T) {
	for name, c := range map[string]struct {
		nodes, silent int
		suspect, ask  time.Duration
	}{
		"one of few":       {5, 1, 1500 * time.Millisecond, 3 * time.Second},
		"all of few":       {10, 10, 1500 * time.Millisecond, 3 * time.Second},
		"one of many":      {liveness.LargeFleet/2 - 1, 1, 1500 * time.Millisecond, 3 * time.Second},
		"some of many":     {200, 30, 1500 * time.Millisecond, 3 * time.Second},
		"a lot of many":    {200, 31, 6 * time.Second, 6 * time.Second},
		"of a large fleet": {liveness.LargeFleet / 2, 60, 2500 * time.Millisecond, 4 * time.Second},
		"a lot of them":    {liveness.LargeFleet / 2, 61, 8 * time.Second, 8 * time.Second},
		"of thousands":     {1500, 60, 3500 * time.Millisecond, 5 * time.Second},
	} {
		a := newTracker()
		for i := range c.nodes {
			a.Update(events.NodeView{Node: ident.NodeID(fmt.Sprintf("node-%d", i)), Incarnation: "A", State: events.NodeStateReady}, noon)
		}
		if a.FleetSize() != c.nodes {
			t.Errorf("%s: %d nodes are aged, want %d", name, a.FleetSize(), c.nodes)
		}
		suspected, asked := time.Duration(0), time.Duration(0)
		for at := time.Duration(0); asked == 0 && at < time.Minute; at += 100 * time.Millisecond {
			for i := c.silent; i < c.nodes; i++ {
				a.Observe(liveness.Incarnation{Node: ident.NodeID(fmt.Sprintf("node-%d", i)), Incarnation: "A"}, broker.Link{}, noon.Add(at))
			}
			suspect, ask := a.Check(noon.Add(at))
			if len(suspect) == c.silent && suspected == 0 {
				suspected = at
			}
			if len(ask) == c.silent {
				asked = at
			}
		}
		if suspected != c.suspect || asked != c.ask {
			t.Errorf("%s: suspected after %s and pinged after %s, want %s and %s", name, suspected, asked, c.suspect, c.ask)
		}
	}
}
