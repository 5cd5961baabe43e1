package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// TestTextsOfAnExitAreShortened: a worker may print text of any length; its exit fact stays small
// and contains the end of the text.
func TestTextsOfAnExitAreShortened(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	s := New(Config{Node: "node-a", Agent: "01JD0000000000000000000000"})
	step := func(in Input) []Action {
		var acts []Action
		s, acts = Step(s, in, now)
		return acts
	}
	place := ident.Place{Node: "node-a"}
	acts := step(Launched{Launch: events.Launch{
		Job: "demo-0000", Node: "node-a", Revision: 1, Phase: events.PhasePrepare, Spec: spec.Job{Recovery: spec.RecoveryInProcess, Command: []string{"x"}},
		Members: []events.LaunchMember{{Member: tables.Member{Place: place, Attempt: 1, Rank: -1}}},
	}})
	id := acts[0].(StartProcess).Worker
	step(ProcessStarted{Worker: id, PID: 7})
	lines := []string{"first"}
	for range 20 {
		lines = append(lines, strings.Repeat("x", 16<<10))
	}
	lines = append(lines, strings.Repeat("y", 900_000)+"ValueError: at the end")
	published := 0
	for _, a := range step(ProcessExited{Worker: id, ExitCode: 1, Lines: lines}) {
		var x events.WorkerExited
		switch a := a.(type) {
		case SendNotice:
			x = a.Notice.Exited
		case PublishFact:
			x = a.Body.(events.WorkerExited)
		default:
			continue
		}
		published++
		text := strings.Join(x.Lines, "\n")
		if len(text) > limits.Lines.Max || !strings.HasSuffix(text, "ValueError: at the end") || !strings.Contains(text, "lines left out]") {
			t.Errorf("%d bytes: %.60q ... %q", len(text), text, text[max(0, len(text)-60):])
		}
	}
	if published != 2 {
		t.Errorf("%d published, want a notice and a fact", published)
	}
}
