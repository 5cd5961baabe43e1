package job_test

import (
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/registry/job"
)

// TestACourseHasFewPoints: a job reports its loss every second for a week. The points are 5 s apart
// at first, then rarer, and the last one is published before the end of the job.
func TestACourseHasFewPoints(t *testing.T) {
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var m job.Machine
	s := m.New(string(demo))
	var published []events.JobProgressed
	var at []time.Time
	ends := 0
	step := func(b events.Body) {
		t.Helper()
		var d events.Decision
		s, d = m.Step(s, events.Input{ID: "e", Source: "s", Body: b}, now)
		for _, f := range d.Facts {
			switch b := f.Body.(type) {
			case events.JobProgressed:
				if ends > 0 {
					t.Error("published after the end")
				}
				published, at = append(published, b), append(at, now)
			case events.JobStopped:
				ends++
			}
		}
	}
	step(events.JobSubmit{Spec: spec.Job{Name: "demo", Command: []string{"train"}, Workers: spec.Workers{Min: 1, Max: 1}}})
	began := now
	p := ident.Place{Node: "a"}
	ref := tables.WorkerRef{Job: demo, Place: p, Incarnation: "w1", Attempt: 1, Agent: "A1", Generation: 1}
	step(events.PlacementSet{Job: demo, Places: ident.Places{p}})
	step(events.RoundSealed{Job: demo, Generation: 1, Members: tables.MemberTable{{Place: p, Incarnation: "w1", Agent: "A1", Attempt: 1}}, Cause: events.Cause{Kind: events.CauseStart, Rank: -1}})
	step(events.WorkerReady{WorkerRef: ref, Step: 1})
	const week = 7 * 24 * 3600
	for i := uint64(1); i <= week; i++ {
		now = began.Add(time.Duration(i) * time.Second)
		loss := map[string]events.Metric{"loss": {Value: 1 / float64(i), Step: i, At: now}}
		step(events.Progress{Job: demo, Place: p, Generation: 1, World: 1, Step: i, Reported: loss})
	}
	if n := len(published); n < 5000 || n > 15_000 {
		t.Errorf("%d points", n)
	}
	for i := 1; i < 1000; i++ {
		if apart := at[i].Sub(at[i-1]); apart < job.StepEvery || apart > 2*job.StepEvery {
			t.Fatalf("points %d and %d are %v apart", i-1, i, apart)
		}
	}
	for i, b := range published {
		if v := b.Values["loss"]; v.Step != b.Step || v.Value != 1/float64(b.Step) {
			t.Fatalf("point %d: %+v", i, b)
		}
	}

	before := len(published)
	step(events.WorkerExited{WorkerRef: ref, ExitCode: 0, Done: true, Step: week + 1, Metrics: map[string]float64{"loss": 0}, MetricSteps: map[string]uint64{"loss": week + 1}})
	step(events.JobStop{Job: demo, Reason: "enough", Now: true})
	for i := 0; ends == 0 && i < 100 && !s.View.State.Terminal(); i++ {
		now = now.Add(time.Second)
		step(events.Progress{Job: demo})
	}
	if !s.View.State.Terminal() || len(published) != before+1 || published[before].Values["loss"].Value != 0 {
		t.Errorf("%s: %d more points, the last %+v", s.View.State, len(published)-before, published[len(published)-1])
	}
}

// TestShortGenerationsHavePoints: a worker dies every 3 s, sooner than the registry writes a step.
// What its replica has heard until then is in the course, not only what the last generation does,
// and the end has the newest step, with the time at which it was heard.
func TestShortGenerationsHavePoints(t *testing.T) {
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	began := now
	var m job.Machine
	s := m.New(string(demo))
	var published []events.JobProgressed
	var heard events.JobProgress
	step := func(b events.Body) {
		t.Helper()
		var d events.Decision
		in := events.Input{ID: "e", Source: "s", Body: b, Others: func() any { return heard }}
		s, d = m.Step(s, in, now)
		for _, f := range d.Facts {
			if b, ok := f.Body.(events.JobProgressed); ok {
				published = append(published, b)
			}
		}
	}
	step(events.JobSubmit{Spec: spec.Job{Name: "demo", Command: []string{"train"}, Workers: spec.Workers{Min: 1, Max: 1}, Recovery: spec.RecoveryInProcess, Failures: spec.Failures{Max: new(100)}}})
	p := ident.Place{Node: "a"}
	step(events.PlacementSet{Job: demo, Places: ident.Places{p}})
	made := uint64(0)
	for g := ident.Generation(1); g <= 6; g++ {
		attempt := int(g)
		ref := tables.WorkerRef{Job: demo, Place: p, Incarnation: ident.Incarnation(g.String()), Attempt: attempt, Agent: "A1", Generation: g}
		cause := events.Cause{Kind: events.CauseStart, Rank: -1}
		if g > 1 {
			cause = events.Cause{Kind: events.CauseWorkerFailed, Place: &p, Rank: 0}
		}
		step(events.RoundSealed{Job: demo, Generation: g, Members: tables.MemberTable{{Place: p, Incarnation: ref.Incarnation, Agent: "A1", Attempt: attempt}}, Cause: cause})
		step(events.WorkerReady{WorkerRef: ref, Step: made + 1})
		now, made = now.Add(3*time.Second), made+30
		heard = events.JobProgress{Generation: g, Step: made, At: now.Add(-100 * time.Millisecond), Reported: map[string]events.Metric{"loss": {Value: 1 / float64(made), Step: made, At: now}}}
		if g < 6 {
			step(events.WorkerExited{WorkerRef: ref, ExitCode: 1, Step: made, Commit: tables.Commit{Generation: g, Step: made}})
		}
	}
	now = now.Add(20 * time.Second) // it is about to end, for long
	step(events.JobStop{Job: demo, Reason: "enough", Now: true})
	for i := 0; i < 100 && !s.View.State.Terminal(); i++ {
		now = now.Add(time.Second)
		step(events.Progress{Job: demo})
	}
	if len(published) < 3 {
		t.Errorf("%d points in 18 s: %+v", len(published), published)
	}
	last := published[len(published)-1]
	if last.Step != made || last.Values["loss"].Step != made || !last.At.Equal(began.Add(18*time.Second-100*time.Millisecond)) {
		t.Errorf("the last point: %+v", last)
	}
}
