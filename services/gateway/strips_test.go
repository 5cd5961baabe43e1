package gateway

import (
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
)

// TestUnheard: a job of which nothing was heard for longer than its steps explain is not painted as
// training.
func TestUnheard(t *testing.T) {
	noon := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	of := func(state events.JobState, step uint64) events.JobView {
		return events.JobView{State: state, Submitted: noon, Step: step, StepAt: at(100), Generations: []events.GenerationView{{Generation: 1, Sealed: noon}}}
	}
	for name, c := range map[string]struct {
		job   events.JobView
		now   int
		heard bool
	}{
		"a moment ago":          {of(events.JobStateRunning, 1000), 114, true},
		"too long ago":          {of(events.JobStateRunning, 1000), 116, false},
		"steps take a minute":   {of(events.JobStateRunning, 2), 290, true},
		"and even so":           {of(events.JobStateRunning, 2), 310, false},
		"no steps are reported": {of(events.JobStateRunning, 0), 900, true},
		"it has ended":          {of(events.JobStateSucceeded, 1000), 900, true},
	} {
		if got := unheard(c.job, at(c.now)); got.IsZero() != c.heard {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestMarks places incidents in time: from the silence before them to the first good step.
func TestMarks(t *testing.T) {
	noon := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return noon.Add(time.Duration(s * float64(time.Second))) }
	v := events.JobView{
		State: events.JobStateRunning, StepAt: at(100), Ended: at(200),
		Generations: []events.GenerationView{{Generation: 1, Sealed: at(0)}, {Generation: 2, Sealed: at(50)}},
		Incidents: []events.IncidentClosed{
			{Incident: 1, To: 1, Cause: events.Cause{Kind: events.CauseStart}},
			{Incident: 2, From: 1, To: 2, Cause: events.Cause{Kind: events.CauseWorkerFailed}, SilenceMS: 2000, Phases: events.Phases{Notice: 100, Abort: 200, Judge: 300, BackOff: 400, Regroup: 500, Sync: 600, FirstStep: 700}},
			{Incident: 3, From: 2, To: 7, Cause: events.Cause{Kind: events.CauseGrow}}, // of a generation that is not kept
		},
		OpenIncident: &events.IncidentOpened{Incident: 4, Cause: events.Cause{Kind: events.CauseNodeLost}},
	}
	all := marks(v)
	if len(all) != 2 || all[0].Incident != 2 || all[1].Incident != 4 {
		t.Fatalf("%+v", all)
	}
	if m := all[0]; !m.From.Equal(at(47)) || !m.To.Equal(at(51.8)) || m.Planned {
		t.Errorf("%+v", m)
	}
	if m := all[1]; !m.From.Equal(at(100)) || !m.To.IsZero() {
		t.Errorf("the open one: %+v", m)
	}
	v.OpenIncident, v.Incidents = nil, []events.IncidentClosed{{Incident: 5, Cause: events.Cause{Kind: events.CauseWorkerFailed}, Phases: events.Phases{Notice: 1000}}}
	if all := marks(v); len(all) != 1 || !all[0].From.Equal(at(199)) || !all[0].To.IsZero() {
		t.Errorf("the job ended in it: %+v", all)
	}
}
