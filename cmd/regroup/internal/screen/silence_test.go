package screen_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/cluster/timeline"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// TestSilenceIsNoTraining: a machine without power for four minutes is found again. What nobody has
// observed is drawn and told as that.
func TestSilenceIsNoTraining(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ref := func(attempt int, g ident.Generation) tables.WorkerRef {
		return tables.WorkerRef{Job: "demo-0001", Place: ident.Place{Node: "a"}, Attempt: attempt, Generation: g}
	}
	closed := events.IncidentClosed{
		Job: "demo-0001", Incident: 1, From: 1, To: 2, Cause: events.Cause{Kind: events.CauseWorkerFailed, Rank: 0}, TotalMS: 2000,
		Phases: events.Phases{Judge: 2000}, SilenceMS: 238_000, AtLeast: true, StepsLost: new(uint64),
	}
	at := func(s int, b events.Body) events.Event {
		return events.Event{Entity: "demo-0001", Time: noon.Add(time.Duration(s) * time.Second), Body: b}
	}
	facts := []events.Event{
		at(0, events.JobSubmitted{Spec: spec.Job{Recovery: spec.RecoveryInProcess}}),
		at(0, events.WorkerStarted{WorkerRef: ref(1, 0)}),
		at(0, events.RoundSealed{Generation: 1, Members: []tables.Member{{Place: ident.Place{Node: "a"}, Attempt: 1}}}),
		at(0, events.WorkerReady{WorkerRef: ref(1, 1), Step: 1}),
		at(298, events.WorkerExited{WorkerRef: ref(1, 1), ExitCode: -1, Signal: "SIGKILL", Orphaned: true}),
		at(298, events.WorkerStarted{WorkerRef: ref(2, 0)}),
		at(299, events.RoundSealed{Generation: 2, Members: []tables.Member{{Place: ident.Place{Node: "a"}, Attempt: 2}}}),
		at(300, events.WorkerReady{WorkerRef: ref(2, 2), Step: 1}),
		at(300, closed),
		at(360, events.JobSucceeded{}),
	}
	line := timeline.New(facts, noon)
	trained := time.Duration(0)
	for _, l := range line.Incarnations {
		for _, s := range l.Stretches {
			if s.Doing == timeline.Training {
				trained += s.To.Sub(s.From)
			}
		}
	}
	if trained != 2*time.Minute {
		t.Errorf("%s of training were drawn, two minutes were observed", trained)
	}
	var out bytes.Buffer
	if err := (screen.Gantt{Width: 80, ASCII: true}).Draw(&out, line); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Count(text, "?") < 20 || !strings.Contains(text, "? not observed") {
		t.Errorf("drawn:\n%s", text)
	}
	unknown := closed
	unknown.SilenceMS, unknown.SilenceUnknown = 0, true
	facts[8] = at(300, unknown)
	trained = 0
	for _, l := range timeline.New(facts, noon).Incarnations {
		for _, s := range l.Stretches {
			if s.Doing == timeline.Training {
				trained += s.To.Sub(s.From)
			}
		}
	}
	if trained != time.Minute {
		t.Errorf("%s of training were drawn where nobody knows since when it was gone, one minute was observed", trained)
	}
	if text := view.IncidentText(unknown); !strings.HasSuffix(text, "for how long nobody had observed it before is unknown") {
		t.Error(text)
	}
	if text := view.IncidentText(closed); !strings.HasSuffix(text, "no step was observed for 238s before") && !strings.Contains(text, "no step was observed for 3m58s before") {
		t.Error(text)
	}
}
