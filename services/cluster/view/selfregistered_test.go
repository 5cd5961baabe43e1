package view

import (
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// TestSelfRegisteredNodes checks the awaited nodes and the spare ones.
func TestSelfRegisteredNodes(t *testing.T) {
	now := time.Unix(1000, 0)
	spec := spec.Job{Name: "mnist", Command: []string{"x"}, Rendezvous: &spec.Rendezvous{
		Nodes: spec.NodeRange{Min: 2, Max: 3}, WorkersPerNode: 2,
	}}.WithDefaults()
	at := func(state events.JobState, g events.RendezvousStatus, r events.RoundView, more func(*events.RendezvousView)) string {
		r.Rendezvous = &events.RendezvousView{RendezvousStatus: g}
		if more != nil {
			more(r.Rendezvous)
		}
		return Explain(Seen{Job: events.JobView{Job: "mnist-1a2b", Spec: spec, State: state, Submitted: now}, Round: r, Now: now}).Sentence
	}
	for want, got := range map[string]string{
		"waits for nodes to come: 1 of 2 to 3 nodes here": at(events.JobStateWaiting, events.RendezvousStatus{Nodes: 1}, events.RoundView{}, nil),
		"2 of 2 to 3 nodes here; the last call ends in 12": at(events.JobStateWaiting, events.RendezvousStatus{Nodes: 2}, events.RoundView{}, func(g *events.RendezvousView) {
			g.LastCall = now.Add(12 * time.Second)
		}),
		"1 spare node; no more nodes are taken in": at(events.JobStateRunning, events.RendezvousStatus{Nodes: 3, Complete: true, Spares: 1, Closed: true},
			events.RoundView{Generation: 1, Members: make([]tables.Member, 6)}, func(g *events.RendezvousView) { g.Placed = []ident.NodeID{"a", "b", "c"} }),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
	if v := Explain(Seen{Job: events.JobView{Spec: spec}, Now: now}); !strings.Contains(v.Sentence, "0 of 2 to 3") {
		t.Errorf("before the first node: %q", v.Sentence)
	}
}
