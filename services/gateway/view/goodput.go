package view

import (
	"time"

	"github.com/regroup-io/regroup/events"
)

// Goodput returns the part of a job's time for which it was in no incident, as far back as its
// generations and incidents are kept; the start is none. An incident that is open counts from the
// last step on. nil = unknown: there was no generation yet, or the job reports no steps, so that
// nobody knows when the open incident began.
func Goodput(v events.JobView, now time.Time) *float64 {
	if len(v.Generations) == 0 {
		return nil
	}
	first := v.Generations[0]
	if len(v.Incidents) > 0 && v.Incidents[0].Incident > 1 { // older ones are gone, with what they took
		for _, g := range v.Generations {
			if g.Generation <= v.Incidents[0].To {
				first = g
			}
		}
	}
	end := now
	if v.State.Terminal() {
		end = v.Ended
	}
	total := end.Sub(first.Sealed).Seconds()
	if total <= 0 {
		return nil
	}
	lost := 0.0
	for _, i := range v.Incidents {
		if i.Cause.Kind != events.CauseStart && (i.To > first.Generation || i.To == 0) {
			lost += i.TotalMS / 1000
		}
	}
	if o := v.OpenIncident; o != nil && o.Cause.Kind != events.CauseStart {
		if v.StepAt.IsZero() {
			return nil
		}
		lost += end.Sub(v.StepAt).Seconds()
	}
	part := max(0, min(1, 1-lost/total))
	return &part
}
