package plan_test

import (
	"slices"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// TestARecalledPoolKnowsWhatJobsWaitFor: a gang that has lost places with a node keeps the others,
// and one that has given all back is known to have been placed.
func TestARecalledPoolKnowsWhatJobsWaitFor(t *testing.T) {
	node := events.NodeFact{Node: "node-a", Incarnation: "A", Slots: 2}
	four := spec.Workers{Min: 4, Max: 4}
	job := func(id ident.JobID, set events.PlacementSet) plan.Placed {
		return plan.Placed{Submitted: events.JobSubmitted{Job: id, Spec: spec.Job{Name: string(id), Workers: four, Recovery: spec.RecoveryRestart}}, Set: &set}
	}
	left := []ident.Place{{Node: "node-a", Slot: 0}, {Node: "node-a", Slot: 1}}
	s := plan.Recalled([]events.Input{{Number: 1, Body: events.NodeJoined{NodeFact: node}}}, []plan.Placed{
		job("lost", events.PlacementSet{Job: "lost", Places: left, Workers: four, LostNodes: []ident.NodeID{"node-b"}}),
		job("drained", events.PlacementSet{Job: "drained", Workers: four}),
	})
	s, d := plan.Machine{}.Step(s, events.Input{Number: 2, Body: events.NodeRecovered{NodeFact: node}}, noon)
	if got := s.View.Jobs["lost"].Places; len(got) != 2 {
		t.Errorf("the job of the lost node has %v, want %v: %s", got, left, printed(d))
	}
	_, d = plan.Machine{}.Step(s, events.Input{Body: events.JobStopped{JobEnd: events.JobEnd{Job: "drained"}}}, noon)
	if len(d.Facts) != 1 || d.Facts[0].Body != (events.PlacementReleased{Job: "drained"}) {
		t.Errorf("the end of the drained job: %s", printed(d))
	}
}

// TestARecalledPoolKnowsMultiples: a job keeps what it has, and grows by multiples only.
func TestARecalledPoolKnowsMultiples(t *testing.T) {
	node := events.NodeFact{Node: "node-a", Incarnation: "A", Slots: 3}
	wanted := spec.Workers{Min: 2, Max: 8}
	has := []ident.Place{{Node: "node-a", Slot: 0}, {Node: "node-a", Slot: 1}, {Node: "node-a", Slot: 2}}
	s := plan.Recalled([]events.Input{{Number: 1, Body: events.NodeJoined{NodeFact: node}}}, []plan.Placed{{
		Submitted: events.JobSubmitted{Job: "pairs", Spec: spec.Job{Name: "pairs", Workers: wanted, Elastic: spec.Elastic{MultipleOf: 2}}},
		Set:       &events.PlacementSet{Job: "pairs", Places: has, Workers: wanted},
	}})
	for i, want := range []int{3, 4, 4, 6} {
		node.Slots = len(has) + i
		var d events.Decision
		s, d = plan.Machine{}.Step(s, events.Input{Number: uint64(2 + i), Body: events.NodeChanged{NodeFact: node}}, noon)
		if got := len(s.View.Jobs["pairs"].Places); got != want {
			t.Errorf("of %d slots it has %d, want %d: %s", node.Slots, got, want, printed(d))
		}
	}
}

// TestARecalledPoolKnowsGPUs: a job keeps the slots that have what it asks for, and gets only such
// slots; one that waits gets its own too.
func TestARecalledPoolKnowsGPUs(t *testing.T) {
	node := events.NodeFact{Node: "node-a", Incarnation: "A", Slots: 4, GPUs: []devices.Slots{{Count: 1, Model: "H100"}, {Count: 1, Model: "T4"}, {Count: 1, Model: "H100"}}}
	job := func(id ident.JobID, model string) plan.Placed {
		return plan.Placed{Submitted: events.JobSubmitted{Job: id, Spec: spec.Job{Name: string(id), Workers: spec.Workers{Min: 1, Max: 4}, GPU: &spec.GPU{Model: model}, Recovery: spec.RecoveryInProcess}}}
	}
	one, two := job("one", "H100"), job("two", "T4")
	one.Set = &events.PlacementSet{Job: "one", Places: []ident.Place{{Node: "node-a", Slot: 2}, {Node: "node-a", Slot: 3}}, Workers: spec.Workers{Min: 1, Max: 4}}
	s := plan.Recalled([]events.Input{{Number: 1, Body: events.NodeJoined{NodeFact: node}}}, []plan.Placed{one, two})
	s, d := plan.Machine{}.Step(s, events.Input{Number: 2, Body: events.NodeRecovered{NodeFact: node}}, noon)
	for id, want := range map[ident.JobID][]ident.Place{"one": {{Node: "node-a", Slot: 0}, {Node: "node-a", Slot: 2}}, "two": {{Node: "node-a", Slot: 1}}} {
		if got := s.View.Jobs[id].Places; !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v: %s", id, got, want, printed(d))
		}
	}
}
