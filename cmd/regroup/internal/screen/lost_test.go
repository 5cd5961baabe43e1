package screen

import (
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/cluster/timeline"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// The summary of an incident claims nothing unobserved: a running process is not training, and a
// missing count is not 0.
func TestIncidentsOfProgramsThatAreStartedAgain(t *testing.T) {
	started := events.IncidentClosed{
		Incident: 1, From: 1, To: 2, Cause: events.Cause{Kind: events.CauseWorkerFailed, Rank: -1},
		Phases: events.Phases{Judge: 70, Regroup: 208}, TotalMS: 278, Started: true,
	}
	planned := started
	planned.Cause.Kind = events.CauseGrow
	stepped := started
	stepped.Started, stepped.AtLeast, stepped.StepsLost = false, true, new(uint64(5))
	stepped.Phases.FirstStep, stepped.TotalMS = 13500, 13778
	silent := stepped
	silent.StepsLost, silent.AtLeast = nil, false
	for _, c := range []struct {
		name               string
		in                 events.IncidentClosed
		story, line, final string
	}{
		{
			"started", started, "g2 ▸ 2 workers started again after 278ms (judge 70ms, regroup 208ms) · steps lost unknown",
			"processes started, no step reported · steps lost unknown", "steps lost unknown",
		},
		{
			"planned", planned, "g2 ▸ 2 workers started again after 278ms (judge 70ms, regroup 208ms) · planned · steps lost unknown",
			"processes started, no step reported · steps lost unknown", "steps lost unknown",
		},
		{
			"steps are reported", stepped, "g2 ▸ 2 workers · training again after 13s (judge 70ms, regroup 208ms, first step 13s) · at least 5 steps lost",
			"· at least 5 steps lost", "steps lost at least 5",
		},
		{
			"no step is seen twice", silent, "g2 ▸ 2 workers · training again after 13s (judge 70ms, regroup 208ms, first step 13s) · steps lost unknown",
			"· steps lost unknown", "steps lost unknown",
		},
	} {
		s := NewStory(Palette{})
		s.Line(events.RoundSealed{Generation: 2, From: 1, Members: make([]tables.Member, 2)})
		if got := s.Line(c.in); got != c.story {
			t.Errorf("%s: the story says\n%q, want\n%q", c.name, got, c.story)
		}
		if got := view.IncidentText(c.in); !strings.HasSuffix(got, c.line) {
			t.Errorf("%s: an incident is %q, want %q at its end", c.name, got, c.line)
		}
		v := events.JobView{Job: "mnist-7f3a", State: events.JobStateSucceeded, Submitted: t0, Ended: t0.Add(time.Second), Incidents: []events.IncidentClosed{c.in}}
		var b strings.Builder
		if err := Final(&b, Palette{}, v, t0); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), "· "+c.final+"\n") {
			t.Errorf("%s: the last line is %q, want %q in it", c.name, b.String(), c.final)
		}
		i := view.Summarize(v, t0).Incidents[0]
		if i.StepsLost != c.in.StepsLost || i.AtLeast != c.in.AtLeast || i.Started != c.in.Started {
			t.Errorf("%s: the summary says %+v", c.name, i)
		}
	}
}

// A restarted process trains from its first step on if its predecessor has reported steps.
func TestTimelineOfProgramsThatAreStartedAgain(t *testing.T) {
	for _, c := range []struct {
		step uint64 // reported 13 s after each start; 0 = none
		want time.Duration
		as   timeline.Doing
	}{{step: 5, want: 43 * time.Second, as: timeline.Training}, {step: 0, want: 30 * time.Second, as: timeline.Running}} {
		facts := []events.Event{{Time: t0, Body: events.JobSubmitted{Spec: spec.Job{Recovery: spec.RecoveryRestart}}}}
		say := func(at time.Duration, b events.Body) {
			facts = append(facts, events.Event{Time: t0.Add(at), Body: b})
		}
		for i, from := range []time.Duration{0, 30 * time.Second} {
			g, w := ident.Generation(i+1), tables.WorkerRef{Place: place("node-a", 0), Attempt: i + 1}
			say(from, events.RoundSealed{Generation: g, Members: []tables.Member{{Place: w.Place, Attempt: w.Attempt}}})
			say(from, events.WorkerStarted{WorkerRef: w})
			say(from, events.WorkerReady{WorkerRef: w})
			if c.step > 0 {
				say(from+13*time.Second, events.WorkerReady{WorkerRef: w, Step: c.step})
			}
			say(from+20*time.Second, events.WorkerExited{WorkerRef: w, ExitCode: 1})
		}
		for _, s := range timeline.New(facts, t0.Add(time.Minute)).Incarnations[1].Stretches {
			if s.Doing == c.as {
				if got := s.From.Sub(t0); got != c.want {
					t.Errorf("steps %d: it trains from %s on, want %s", c.step, got, c.want)
				}
				c.want = 0
			}
		}
		if c.want != 0 {
			t.Errorf("steps %d: it never trains", c.step)
		}
	}
}

// TestAGenerationThatBeginsWithACheckpoint says so, and the one after it does not.
func TestAGenerationThatBeginsWithACheckpoint(t *testing.T) {
	s := NewStory(Palette{})
	back := events.IncidentClosed{From: 1, To: 2, TotalMS: 1900, StepsLost: new(uint64(30)), Cause: events.Cause{Kind: events.CauseWorkerFailed}}
	back.Phases.FirstStep = 1900
	for g, want := range []string{
		"g2 ▸ 2 workers · training again after 1.9s (first step 1.9s) · from the checkpoint of step 360 · 30 steps lost",
		"g3 ▸ 2 workers · training again after 1.9s (first step 1.9s) · 30 steps lost",
	} {
		back.To = ident.Generation(g + 2)
		s.Line(events.RoundSealed{Generation: back.To, From: back.To - 1, Members: make([]tables.Member, 2)})
		if g == 0 {
			s.Line(events.WorkerReady{WorkerRef: tables.WorkerRef{Generation: 2}, Step: 361, Checkpoint: &tables.Commit{Generation: 1, Step: 360}})
		}
		if got := s.Line(back); got != want {
			t.Errorf("the story says\n%q, want\n%q", got, want)
		}
	}
}
