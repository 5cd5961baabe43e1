package view

import (
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// TestGoodput counts what is known, and says nothing where something is not.
func TestGoodput(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	sealed := func(from int, seconds ...int) (all []events.GenerationView) {
		for i, s := range seconds {
			all = append(all, events.GenerationView{Generation: ident.Generation(from + i), Sealed: at(s)})
		}
		return all
	}
	lost := func(number, to int, seconds float64) events.IncidentClosed {
		return events.IncidentClosed{Incident: number, To: ident.Generation(to), TotalMS: 1000 * seconds, Cause: events.Cause{Kind: events.CauseWorkerFailed}, StepsLost: new(uint64)}
	}
	// An incident of 2 s after a silence of a minute, with steps that were lost.
	silent := func(steps uint64, atLeast bool) events.IncidentClosed {
		i := lost(1, 2, 2)
		i.SilenceMS, i.StepsLost, i.AtLeast = 58_000, &steps, atLeast
		return i
	}
	unknown := lost(1, 2, 10)
	unknown.StepsLost = nil
	start := lost(1, 1, 5)
	start.Cause.Kind = events.CauseStart
	open := &events.IncidentOpened{Incident: 3, Cause: events.Cause{Kind: events.CauseWorkerFailed}}
	for name, c := range map[string]struct {
		job  events.JobView
		want float64 // -1 = unknown
	}{
		"no steps are reported":                {events.JobView{Generations: sealed(1, 0)}, -1},
		"no generation":                        {events.JobView{}, -1},
		"no incident":                          {events.JobView{Step: 9, Generations: sealed(1, 0)}, 1},
		"one, and the start":                   {events.JobView{Step: 9, Generations: sealed(1, 0, 50), Incidents: []events.IncidentClosed{start, lost(2, 2, 10)}}, 0.9},
		"one is open":                          {events.JobView{Step: 9, Generations: sealed(1, 0, 50), Incidents: []events.IncidentClosed{start, lost(2, 2, 10)}, OpenIncident: open, StepAt: at(70)}, 0.6},
		"one is open, without steps":           {events.JobView{Generations: sealed(1, 0), OpenIncident: open}, -1},
		"older ones are gone":                  {events.JobView{Step: 9, Generations: sealed(1, 0, 50, 80), Incidents: []events.IncidentClosed{lost(7, 2, 10), lost(8, 3, 5)}}, 0.9},
		"older generations too":                {events.JobView{Step: 9, Generations: sealed(9, 50, 80), Incidents: []events.IncidentClosed{lost(7, 8, 10), lost(8, 10, 5)}}, 0.9},
		"a silence before":                     {events.JobView{Step: 9, Generations: sealed(1, 0, 80), Incidents: []events.IncidentClosed{silent(0, false)}}, 0.4},
		"and steps that were made twice":       {events.JobView{Step: 300, Generations: sealed(1, 0, 80), Incidents: []events.IncidentClosed{silent(100, false)}}, 0.3},
		"at most: a number that is a bound":    {events.JobView{Step: 300, Generations: sealed(1, 0, 80), Incidents: []events.IncidentClosed{silent(100, true)}}, 0.3},
		"at most: steps lost are not known":    {events.JobView{Step: 300, Generations: sealed(1, 0, 80), Incidents: []events.IncidentClosed{unknown}}, 0.9},
		"nobody knows what the fault cost":     {events.JobView{Generations: sealed(1, 0, 80), Incidents: []events.IncidentClosed{unknown}}, -1},
		"nothing is heard since half the time": {events.JobView{State: events.JobStateRunning, Step: 9, StepAt: at(50), Generations: sealed(1, 0, 20), Incidents: []events.IncidentClosed{lost(1, 2, 10)}}, 0.8},
		"the job has ended":                    {events.JobView{Step: 9, State: events.JobStateFailed, Ended: at(20), Generations: sealed(1, 0), Incidents: []events.IncidentClosed{lost(1, 0, 10)}}, 0.5},
	} {
		got := -1.0
		g, atMost := Goodput(c.job, at(100))
		if g != nil {
			got = *g
		}
		if atMost != strings.HasPrefix(name, "at most: ") {
			t.Errorf("%s: at most is %t", name, atMost)
		}
		if got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
