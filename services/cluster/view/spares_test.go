package view

import (
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spares"
)

// TestSparesText: nodes that are gone, and other jobs, do not count.
func TestSparesText(t *testing.T) {
	node := func(id ident.NodeID, state events.NodeState, kept ...spares.Kept) events.NodeView {
		return events.NodeView{Node: id, State: state, Spares: kept}
	}
	all := []events.NodeView{
		node("node-a", events.NodeStateReady, spares.Kept{Job: "other", Wanted: 9}, spares.Kept{Job: "mnist-7f3a", Wanted: 2, Ready: 2}),
		node("node-b", events.NodeStateLost, spares.Kept{Job: "mnist-7f3a", Wanted: 2, Ready: 2}),
		node("node-c", events.NodeStateSuspected, spares.Kept{Job: "mnist-7f3a", Wanted: 2, Ready: 1, Problem: "GPU 1: RuntimeError: out of memory"}),
	}
	if got, want := SparesText("mnist-7f3a", all), "3 of 4 ready on 2 nodes; on node-c: GPU 1: RuntimeError: out of memory"; got != want {
		t.Errorf("says %q, want %q", got, want)
	}
	if got := SparesText("mnist-7f3a", all[1:2]); got != "" {
		t.Errorf("without a node that keeps some: %q", got)
	}
	s := Seen{Job: job(events.JobStateWaiting), Now: now, Nodes: all, Placement: events.PlacementView{Places: places(2)}}
	s.Round = events.RoundView{State: events.RoundStateOpen, Proposed: 1, Expected: places(2)}
	if got := Explain(s).Sentence; strings.Contains(got, "spares") {
		t.Errorf("a job that does not wait for them: %s", got)
	}
	s.Job.Spec.Processes.AwaitSpares = true
	if got := Explain(s).Sentence; !strings.Contains(got, "; it begins when its spares are ready: 3 of 4 ready on 2 nodes;") {
		t.Errorf("a job that does: %s", got)
	}
}
