package liveness_test

import (
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/services/discovery/liveness"
)

// TestASlotThatComputesWronglyIsQuarantinedInAnyCase: also where failures quarantine nothing, as on
// the only node of regroup run.
func TestASlotThatComputesWronglyIsQuarantinedInAnyCase(t *testing.T) {
	off := rules
	off.Failures, off.Losses = 0, 0
	m := liveness.Machine{Rules: off}
	s := m.New("a")
	step := func(b events.Body) {
		s, _ = m.Step(s, events.Input{ID: "e", Source: "s", Body: b, Time: noon}, noon)
	}
	step(events.NodeHello{Node: "a", Incarnation: "A1", Slots: 3})
	count := func(slot ident.Slot, worker ident.Incarnation, kind events.FailureKind) int {
		step(events.JobFailureCounted{Job: "j-0001", Place: ident.Place{Node: "a", Slot: slot}, Worker: worker, Kind: kind, Detail: "it differs"})
		return len(s.View.QuarantinedSlots)
	}
	for _, w := range []ident.Incarnation{"w1", "w2", "w3", "w4"} {
		if n := count(0, w, events.FailureCrash); n != 0 {
			t.Fatalf("%d slots are quarantined for a crash", n)
		}
	}
	if n := count(1, "w5", events.FailureCorrupt); n != 1 || s.View.QuarantinedSlots[0].Slot != 1 || s.View.QuarantinedSlots[0].Reason != "it differs" {
		t.Errorf("quarantined: %+v", s.View.QuarantinedSlots)
	}
}
