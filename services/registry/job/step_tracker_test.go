package job_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/registry/job"
)

func record(g ident.Generation, step uint64, hang time.Duration) events.JobView {
	return events.JobView{
		Job: demo, State: events.JobStateRunning, Generation: g, Step: step,
		Spec: spec.Job{Health: spec.Health{Hang: spec.Duration(hang)}},
	}
}

// TestStepTracker: times are in seconds after the job was added; checks are every 200 ms.
func TestStepTracker(t *testing.T) {
	type does = map[string]func(*job.StepTracker, time.Time)
	step := func(g ident.Generation, n uint64) func(*job.StepTracker, time.Time) {
		return func(a *job.StepTracker, now time.Time) {
			a.Observe(events.Progress{Job: demo, Generation: g, Step: n}, now)
		}
	}
	know := func(v events.JobView) func(*job.StepTracker, time.Time) {
		return func(a *job.StepTracker, now time.Time) { a.Update(v, now) }
	}
	finishing := record(1, 1, 10*time.Second)
	finishing.State = events.JobStateFinishing
	stored := record(1, 9, 10*time.Second)
	after := record(2, 1, 10*time.Second) // a generation that was lost after 3 s without a step
	after.TimeWithoutStep = spec.Duration(3 * time.Second)
	for _, c := range []struct {
		name string
		with events.JobView
		at   does
		want string
	}{
		{"silent", record(1, 1, 10*time.Second), nil, " still@10s still@20s"},
		{"no limit", record(1, 1, 0), nil, ""},
		{"a program that reports no steps", record(1, 0, 10*time.Second), nil, ""},
		{"not running", finishing, nil, ""},
		{"a step", record(1, 1, 10*time.Second), does{"8s": step(1, 2)}, " step2@8s step2@13s still@18s"},
		{"a step twice", record(1, 1, 10*time.Second), does{"4s": step(1, 2), "9s": step(1, 2)}, " step2@4s step2@9s still@14s still@24s"},
		{"a step of another generation", record(1, 1, 10*time.Second), does{"8s": step(2, 2)}, " still@10s still@20s"},
		{"a new generation gets a full grace", record(1, 1, 10*time.Second), does{"8s": know(record(2, 1, 10*time.Second))}, " still@18s"},
		{"a new generation goes on with the time of those without a step", record(1, 1, 10*time.Second), does{"8s": know(after)}, " still@15s"},
		{"a replica that begins has not heard those before", after, nil, " still@10s still@20s"},
		{"another replica has heard more", record(1, 1, 10*time.Second), does{"8s": know(stored)}, " still@18s"},
		{"the record is forgotten", record(1, 1, 10*time.Second), does{"8s": func(a *job.StepTracker, _ time.Time) { a.Forget(demo) }}, ""},
		{"it ends", record(1, 1, 10*time.Second), does{"8s": know(finishing)}, ""},
		{"cut off, then a full grace", record(1, 1, 10*time.Second), does{
			"5s":  func(a *job.StepTracker, now time.Time) { a.Connected(false, now) },
			"12s": func(a *job.StepTracker, now time.Time) { a.Connected(true, now) },
		}, " still@22s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, got := job.StepTracker{Gap: time.Second}, ""
			a.Update(c.with, epoch)
			for at := time.Duration(0); at < 25*time.Second; at += 200 * time.Millisecond {
				if do := c.at[at.String()]; do != nil {
					do(&a, epoch.Add(at))
				}
				still, unstored := a.Check(epoch.Add(at))
				for _, s := range still {
					if s.Job != demo || s.For.D() < 10*time.Second {
						t.Errorf("%+v", s)
					}
					got += fmt.Sprintf(" still@%s", at)
				}
				for _, p := range unstored {
					if at < 14*time.Second { // it is offered again until the record has it
						got += fmt.Sprintf(" step%d@%s", p.Step, at)
					}
				}
			}
			if got != c.want {
				t.Errorf("got%s, want%s", got, c.want)
			}
		})
	}
}

func TestGapBetweenChecksRestartsTimeouts(t *testing.T) {
	a := job.StepTracker{Gap: time.Second}
	a.Update(record(1, 1, 10*time.Second), epoch)
	a.Check(epoch)
	if still, _ := a.Check(epoch.Add(time.Hour)); len(still) > 0 {
		t.Errorf("after an hour without a look %v stands still", still)
	}
	if still, _ := a.Check(epoch.Add(-time.Hour)); len(still) > 0 {
		t.Errorf("after a clock that was set back %v stands still", still)
	}
}

// TestTheNewestStepIsKept while a new generation has none: what was received is newer than what is
// stored at most every 5 s. Once the record has something newer, that counts.
func TestTheNewestStepIsKept(t *testing.T) {
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	var a job.StepTracker
	v := record(1, 10, 0)
	v.StepAt = at(0)
	a.Update(v, at(0))
	a.Observe(events.Progress{Job: demo, Generation: 1, Step: 14}, at(2))
	for g := ident.Generation(2); g <= 3; g++ { // the second one broke before its first step
		v.Generation = g
		a.Update(v, at(3))
		if p, _ := a.Progress(demo); p.Step != 14 || !p.At.Equal(at(2)) || p.Generation != g {
			t.Errorf("generation %d has no step yet: %+v, want step 14 of 2 s", g, p)
		}
	}
	v.Step, v.StepAt = 12, at(4)
	a.Update(v, at(4))
	if p, _ := a.Progress(demo); p.Step != 0 {
		t.Errorf("the record is newer: %+v", p)
	}
	a.Observe(events.Progress{Job: demo, Generation: 3, Step: 13}, at(5))
	if p, _ := a.Progress(demo); p.Step != 13 {
		t.Errorf("%+v, want step 13 of this generation", p)
	}
}

// TestRedundancyIsKept: the newest report is answered and stored, also without a step, and is that
// of the generation before until there is one.
func TestRedundancyIsKept(t *testing.T) {
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	say := func(g ident.Generation, step uint64, losses int) events.Progress {
		return events.Progress{Job: demo, Generation: g, Redundancy: &events.RedundancyReport{
			Commit: tables.Commit{Generation: 1, Step: step}, CommitAgeMS: new(1000.0), Losses: losses,
		}}
	}
	var a job.StepTracker
	a.Update(record(1, 0, 0), at(0))
	if p, ok := a.Progress(demo); ok {
		t.Fatalf("before anything was said: %+v", p)
	}
	a.Observe(say(1, 5, 1), at(10))
	p, ok := a.Progress(demo)
	if r := p.Redundancy; !ok || p.Step != 0 || r == nil || r.Losses != 1 || r.Generation != 1 || !r.CommittedAt.Equal(at(9)) || !r.ReportedAt.Equal(at(10)) {
		t.Fatalf("%+v, %+v", p, p.Redundancy)
	}
	_, unstored := a.Check(at(10))
	if len(unstored) != 1 || unstored[0].Known != p.Redundancy {
		t.Fatalf("to be stored: %+v", unstored)
	}
	v := record(1, 0, 0)
	v.Redundancy = p.Redundancy
	a.Update(v, at(10))
	if _, unstored := a.Check(at(20)); len(unstored) > 0 {
		t.Errorf("it is stored already: %+v", unstored)
	}
	a.Observe(say(1, 6, 2), at(20))
	v.Generation = 2
	a.Update(v, at(21))
	if p, _ := a.Progress(demo); p.Generation != 2 || p.Redundancy.Generation != 1 || p.Redundancy.Commit.Step != 6 {
		t.Errorf("before the new generation has said anything: %+v, %+v", p, p.Redundancy)
	}
	a.Observe(say(1, 7, 3), at(22)) // late
	a.Observe(say(2, 5, 0), at(22))
	if p, _ := a.Progress(demo); p.Redundancy.Generation != 2 || p.Redundancy.Losses != 0 || p.Redundancy.Commit.Step != 5 {
		t.Errorf("%+v", p.Redundancy)
	}
	v.Redundancy = &events.Redundancy{Generation: 2, Commit: tables.Commit{Generation: 2, Step: 8}, ReportedAt: at(23), Losses: 1}
	a.Update(v, at(23)) // of another replica, which has heard more
	if p, _ := a.Progress(demo); p.Redundancy.Commit.Step != 8 {
		t.Errorf("%+v", p.Redundancy)
	}
}
