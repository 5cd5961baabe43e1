package job_test

import (
	"fmt"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// TestDocumentStaysSmall moves a job to a new node a thousand times: its document must not grow
// with its age.
func TestDocumentStaysSmall(t *testing.T) {
	w := newWorld()
	step := func(b events.Body, number uint64) {
		w.s, _ = w.m.Step(w.s, events.Input{Number: number, Body: b}, w.now)
	}
	limit := 20
	step(events.JobSubmit{Spec: spec.Job{
		Name: "demo", Command: []string{"x"}, Recovery: spec.RecoveryInProcess,
		Workers: spec.Workers{Min: 1, Max: 1}, Failures: spec.Failures{Max: &limit},
	}}, 0)
	size := func() int { return len(stored(t, w.s)) }
	var half int
	const moves = 1000
	for g := 1; g <= moves; g++ {
		p := ident.Place{Node: ident.NodeID(fmt.Sprintf("node-%04d", g))}
		ref := tables.WorkerRef{
			Job: demo, Place: p, Incarnation: ident.Incarnation(fmt.Sprintf("w%04d", g)), Agent: "A1", Attempt: 1,
			Generation: ident.Generation(g),
		}
		step(events.PlacementSet{Job: demo, Places: []ident.Place{p}}, uint64(g))
		step(events.RoundSealed{
			Job: demo, Generation: ref.Generation, From: ref.Generation - 1, JudgeMS: 1,
			Cause:   events.Cause{Kind: events.CauseGrow, Rank: -1},
			Members: []tables.Member{{Place: p, Incarnation: ref.Incarnation, Attempt: 1}},
		}, 0)
		step(events.WorkerReady{WorkerRef: ref}, 0)
		step(events.WorkerExited{WorkerRef: ref, ExitCode: -1, Asked: true}, 0)
		step(events.NodeLeft{NodeFact: events.NodeFact{Node: p.Node, Incarnation: "A1"}}, 0)
		if g == moves/2 {
			half = size()
		}
	}
	if w.s.View.Generation != moves || w.s.View.State != events.JobStateRunning || len(w.s.View.Failures) != 0 {
		t.Fatalf("the job is %s in %s with %d failures", w.s.View.State, w.s.View.Generation, len(w.s.View.Failures))
	}
	if n := size(); n > half+half/10 {
		t.Errorf("%d bytes after %d moves, %d after half of them", n, moves, half)
	}
}
