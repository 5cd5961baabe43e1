package view

import (
	"time"

	"github.com/regroup-io/regroup/events"
)

// Goodput returns the part of a job's observed time that brought it forward, as far back as its
// generations and incidents are kept. Incidents, the silence before them, and the time for steps
// that were lost and made again do not; the start is no incident. What nobody has observed is not
// counted at all: a running job is measured up to its newest step. atMost: not all lost steps are
// known, and the part may be smaller. nil = unknown: there was no generation yet, or the job
// reports no steps, so that nobody knows what an incident has cost.
func Goodput(v events.JobView, now time.Time) (part *float64, atMost bool) {
	if len(v.Generations) == 0 || v.Step == 0 {
		return nil, false
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
	} else if v.OpenIncident == nil && v.StepAt.After(first.Sealed) && v.StepAt.Before(now) {
		end = v.StepAt
	}
	total := end.Sub(first.Sealed).Seconds()
	if total <= 0 {
		return nil, false
	}
	lost, again := 0.0, uint64(0)
	for _, i := range v.Incidents {
		if i.Cause.Kind == events.CauseStart || (i.To <= first.Generation && i.To != 0) {
			continue
		}
		lost += (i.TotalMS + i.SilenceMS) / 1000
		switch {
		case i.StepsLost != nil:
			again += *i.StepsLost
			atMost = atMost || i.AtLeast
		case i.To == 0 || i.Cause.Kind.Planned(): // nothing is made again
		default:
			atMost = true
		}
	}
	if o := v.OpenIncident; o != nil && o.Cause.Kind != events.CauseStart {
		if v.StepAt.IsZero() {
			return nil, false
		}
		lost += end.Sub(v.StepAt).Seconds()
	}
	good := max(0, min(1, 1-lost/total))
	if again > 0 && v.Step > 0 { // a step that was lost took as long as any other
		good *= float64(v.Step) / float64(v.Step+again)
	}
	return &good, atMost
}
