package liveness_test

import (
	"slices"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spares"
	"github.com/regroup-io/regroup/services/discovery/liveness"
)

// TestSparesAreShown as of the newest hello, for people alone: no fact has them.
func TestSparesAreShown(t *testing.T) {
	m := liveness.Machine{Rules: rules}
	s := m.New("node-a")
	hello := func(inc ident.Incarnation, kept ...spares.Kept) events.Decision {
		t.Helper()
		var d events.Decision
		s, d = m.Step(s, events.Input{Body: events.NodeHello{Node: "node-a", Incarnation: inc, Slots: 2, Spares: kept, Predecessors: []ident.Incarnation{s.View.Incarnation}}}, noon)
		if d.Refusal != nil {
			t.Fatal(d.Refusal)
		}
		if !slices.Equal(s.View.Spares, kept) {
			t.Errorf("after the hello of %s: %s", inc, text(s.View))
		}
		return d
	}
	hello("A")
	for _, ready := range []int{0, 1, 2} {
		if d := hello("A", spares.Kept{Job: "mnist-7f3a", Wanted: 2, Ready: ready}); len(d.Facts) > 0 {
			t.Errorf("facts say that %d are ready: %+v", ready, d.Facts)
		}
	}
	hello("B")
}
