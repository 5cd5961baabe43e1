package plan_test

import (
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

var h100 = spec.GPU{Model: "H100"}

// TestKnowsMeansNoChange: an input that Knows reports as known changes nothing, and others do.
func TestKnowsMeansNoChange(t *testing.T) {
	m := plan.Machine{}
	s := m.New("")
	spec := spec.Job{Name: "demo", Command: []string{"x"}, Workers: spec.Workers{Min: 1, Max: 2}}.WithDefaults()
	node := events.NodeFact{Node: "node-a", Incarnation: "A", Slots: 2}
	gpus, asks := node, spec
	gpus.GPUs, asks.GPU = []devices.Slots{{Count: 2, Model: "H100"}}, &h100
	end := events.JobEnd{Job: "demo-0"}
	for _, c := range []struct {
		number uint64
		body   events.Body
		knows  bool
	}{
		{1, events.NodeJoined{NodeFact: node}, false},
		{1, events.NodeJoined{NodeFact: node}, true},
		{2, events.NodeSuspected{NodeFact: node}, false},
		{2, events.NodeSuspected{NodeFact: node}, true},
		{1, events.NodeDraining{NodeFact: node}, true},
		{0, events.NodeJoined{NodeFact: node}, false}, // unnumbered, so without an order
		{3, events.JobSubmitted{Job: "demo-1", Spec: spec}, false},
		{3, events.JobSubmitted{Job: "demo-1", Spec: spec}, true},
		{4, events.JobScaled{Job: "demo-1", Workers: spec.Workers}, false},
		{4, events.JobScaled{Job: "demo-1", Workers: spec.Workers}, true},
		{5, events.JobScaled{Job: "demo-0", Workers: spec.Workers}, false},
		{5, events.JobSubmitted{Job: "demo-0", Spec: spec}, false},
		{6, events.JobStopped{JobEnd: end}, false},
		{7, events.JobScaled{Job: "demo-0", Workers: spec.Workers}, true},
		{7, events.JobSubmitted{Job: "demo-0", Spec: spec}, true},
		{3, events.NodeLost{NodeFact: node}, false},
		{3, events.NodeLeft{NodeFact: node}, true},
		{4, events.NodeLeft{NodeFact: node}, false},
		{5, events.NodeChanged{NodeFact: gpus}, false},
		{5, events.NodeChanged{NodeFact: gpus}, true},
		{4, events.NodeJoined{NodeFact: gpus}, true},
		{3, events.JobSubmitted{Job: "demo-2", Spec: asks}, false},
		{3, events.JobSubmitted{Job: "demo-2", Spec: asks}, true},
	} {
		in := events.Input{Number: c.number, Body: c.body}
		if got := s.Knows(in); got != c.knows {
			t.Errorf("%s %d is known: %t, want %t", c.body.Type(), c.number, got, c.knows)
		}
		s, _ = m.Step(s, in, time.Unix(1000, 0))
	}
}
