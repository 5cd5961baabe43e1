package timeline

import (
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// TestOnlyWhatWasReportedIsTraining draws one worker that is ready at second 0, under reports of
// steps and the lack of them.
func TestOnlyWhatWasReportedIsTraining(t *testing.T) {
	noon := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	type report struct {
		second int
		step   uint64
	}
	every5 := func(from, to int, perSecond uint64) (all []report) {
		for s := from; s <= to; s += 5 {
			all = append(all, report{s, uint64(s)*perSecond + 1})
		}
		return all
	}
	for name, c := range map[string]struct {
		reports              []report
		now                  int
		training, unobserved int // seconds
	}{
		"reports go on":                         {every5(5, 300, 10), 303, 303, 0},
		"nobody listened for four minutes":      {append(every5(5, 60, 10), every5(300, 360, 10)...), 360, 120, 240},
		"one step took four minutes":            {append(every5(5, 60, 10), report{300, 602}), 302, 302, 0},
		"steps of a minute":                     {[]report{{60, 2}, {120, 3}, {180, 4}}, 400, 400, 0},
		"steps of a minute, and then silence":   {[]report{{60, 2}, {120, 3}, {180, 4}}, 440, 180, 260},
		"the job has said nothing for a minute": {every5(5, 60, 10), 120, 60, 60},
		"steps are made again":                  {append(every5(5, 60, 10), report{65, 10}, report{70, 60}), 72, 72, 0},
	} {
		facts := []events.Event{
			{Time: noon, Body: events.JobSubmitted{Spec: spec.Job{Recovery: spec.RecoveryInProcess}}},
			{Time: noon, Body: events.RoundSealed{Generation: 1, Members: []tables.Member{{Place: ident.Place{Node: "a"}, Attempt: 1}}}},
			{Time: noon, Body: events.WorkerStarted{WorkerRef: tables.WorkerRef{Place: ident.Place{Node: "a"}, Attempt: 1}}},
			{Time: noon, Body: events.WorkerReady{WorkerRef: tables.WorkerRef{Place: ident.Place{Node: "a"}, Attempt: 1, Generation: 1}, Step: 1}},
		}
		for _, r := range c.reports {
			facts = append(facts, events.Event{Time: noon.Add(time.Duration(r.second) * time.Second), Body: events.JobProgressed{Generation: 1, Step: r.step}})
		}
		sums := map[Doing]int{}
		var last time.Time
		for _, s := range New(facts, noon.Add(time.Duration(c.now)*time.Second)).Incarnations[0].Stretches {
			if s.From.Before(last) {
				t.Errorf("%s: a stretch begins at %s, before the end of the one before", name, s.From)
			}
			last = s.To
			sums[s.Doing] += int(s.To.Sub(s.From).Seconds())
		}
		if sums[Training] != c.training || sums[Unobserved] != c.unobserved {
			t.Errorf("%s: %v, want %d s of training and %d s that nobody observed", name, sums, c.training, c.unobserved)
		}
	}
}

// TestAProgramWithoutStepsRuns: that its process exists is all that is known.
func TestAProgramWithoutStepsRuns(t *testing.T) {
	noon := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	ref := tables.WorkerRef{Place: ident.Place{Node: "a"}, Attempt: 1}
	l := New([]events.Event{
		{Time: noon, Body: events.JobSubmitted{Spec: spec.Job{Recovery: spec.RecoveryRestart}}},
		{Time: noon, Body: events.RoundSealed{Generation: 1, Members: []tables.Member{{Place: ref.Place, Attempt: 1}}}},
		{Time: noon, Body: events.WorkerStarted{WorkerRef: ref}},
		{Time: noon, Body: events.WorkerReady{WorkerRef: ref}},
	}, noon.Add(time.Hour)).Incarnations[0]
	if s := l.Stretches[len(l.Stretches)-1]; s.Doing != Running || s.To.Sub(s.From) != time.Hour {
		t.Errorf("%+v", l.Stretches)
	}
}

// TestAnExitThatIsHeardLate: the round that replaces a worker is opened before its exit is stored,
// which says how old it is.
func TestAnExitThatIsHeardLate(t *testing.T) {
	noon := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	ref := tables.WorkerRef{Place: ident.Place{Node: "a"}, Attempt: 1, Generation: 1}
	l := New([]events.Event{
		{Time: noon, Body: events.JobSubmitted{Spec: spec.Job{Recovery: spec.RecoveryInProcess}}},
		{Time: noon, Body: events.WorkerStarted{WorkerRef: ref}},
		{Time: noon, Body: events.WorkerReady{WorkerRef: ref, Step: 1}},
		{Time: noon.Add(2040 * time.Millisecond), Body: events.RoundOpened{Cause: events.Cause{Kind: events.CauseWorkerFailed}}},
		{Time: noon.Add(2050 * time.Millisecond), Body: events.WorkerExited{WorkerRef: ref, ExitCode: 1, AgeMS: 50}},
	}, noon.Add(time.Minute)).Incarnations[0]
	for _, s := range l.Stretches {
		if s.To.Before(s.From) {
			t.Errorf("%s ends before it begins", s.Doing)
		}
	}
	if s := l.Stretches[len(l.Stretches)-1]; s.Doing != Training || !s.To.Equal(noon.Add(2*time.Second)) || !l.Ended.Equal(s.To) {
		t.Errorf("%+v, ended %s", l.Stretches, l.Ended)
	}
}
