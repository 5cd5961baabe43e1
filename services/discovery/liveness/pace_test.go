package liveness_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/discovery/liveness"
)

// TestACrowdSpeaksLessOften: its agents are asked to, and its silences may be longer by one heartbeat.
func TestACrowdSpeaksLessOften(t *testing.T) {
	for crowd, want := range map[int]events.NodeWelcome{
		0:                    {Node: "node-a", Hello: events.Duration(10 * time.Second)},
		liveness.Crowd - 1:   {Node: "node-a", Hello: events.Duration(10 * time.Second)},
		liveness.Crowd:       {Node: "node-a", Hello: events.Duration(20 * time.Second), Heartbeat: events.Duration(time.Second)},
		5 * liveness.Crowd:   {Node: "node-a", Hello: events.Duration(60 * time.Second), Heartbeat: events.Duration(time.Second)},
		5*liveness.Crowd - 1: {Node: "node-a", Hello: events.Duration(50 * time.Second), Heartbeat: events.Duration(time.Second)},
	} {
		m := liveness.Machine{}
		_, d := m.Step(m.New("node-a"), events.Input{Body: events.NodeHello{Node: "node-a", Incarnation: "A", Slots: 1, Crowd: crowd}}, noon)
		if d.Reply != want {
			t.Errorf("one of %d is told %+v, want %+v", crowd, d.Reply, want)
		}
	}
	for nodes, want := range map[int][2]time.Duration{
		liveness.Crowd/2 - 1: {1500 * time.Millisecond, 3 * time.Second},
		liveness.Crowd / 2:   {2500 * time.Millisecond, 4 * time.Second},
	} {
		a := ages()
		for i := range nodes {
			a.Know(events.NodeView{Node: events.NodeID(fmt.Sprintf("node-%d", i)), Incarnation: "A", State: events.NodeReady}, noon)
		}
		if a.Crowd() != nodes {
			t.Errorf("%d nodes are aged, want %d", a.Crowd(), nodes)
		}
		for at := time.Duration(0); at <= want[1]; at += 100 * time.Millisecond {
			suspect, ask := a.Look(noon.Add(at))
			if first := at == want[0]; (len(suspect) == nodes) != first && at < 2*want[0] {
				t.Errorf("of %d nodes %d are suspected after %s, want all after %s", nodes, len(suspect), at, want[0])
			}
			if (len(ask) == nodes) != (at == want[1]) {
				t.Errorf("of %d nodes %d are pinged after %s, want all after %s", nodes, len(ask), at, want[1])
			}
		}
	}
}
