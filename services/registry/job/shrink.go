package job

import (
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/limits"
)

// What a job's document does without when it would outgrow its store.
const (
	shortDetail = 96 // bytes of the story of one worker, failure or incident
	shortKept   = 16 // generations, incidents and charges
	leftOut     = "… [left out here, `regroup logs` has it]"
)

// Shrink leaves out what people can find elsewhere, then what they need least: the last output of all workers but the first that
// failed, long details, members of older generations, old history. What the registry decides from stays.
func (s State) Shrink() (State, bool) {
	v := &s.View
	return s, shrinkLines(v, leftOut) || shrinkDetails(v) || shrinkMembers(v) || shrinkHistory(v) || shrinkLines(v, "") || shrinkFirst(v)
}

// shrinkLines puts one line, or none, in the place of the last output of all workers.
func shrinkLines(v *events.JobView, instead string) (done bool) {
	for i := range v.Workers {
		lines := &v.Workers[i].Lines
		switch {
		case len(*lines) == 0, len(*lines) == 1 && (*lines)[0] == instead:
		case instead == "":
			*lines, done = nil, true
		default:
			*lines, done = []string{instead}, true
		}
	}
	return done
}

func shrinkDetails(v *events.JobView) (done bool) {
	short := func(text *string) {
		if len(*text) > shortDetail {
			*text, done = limits.Shorten(*text, shortDetail), true
		}
	}
	for i := range v.Workers {
		short(&v.Workers[i].Detail)
		if v.Workers[i].Exception != nil { // the detail begins with it
			v.Workers[i].Exception, done = nil, true
		}
	}
	for i := range v.Generations {
		short(&v.Generations[i].Cause.Detail)
	}
	for i := range v.Incidents {
		short(&v.Incidents[i].Cause.Detail)
	}
	for i := range v.CountedFailures {
		short(&v.CountedFailures[i].Detail)
	}
	return done
}

// shrinkMembers forgets who was in all generations but the newest two.
func shrinkMembers(v *events.JobView) (done bool) {
	for i := range max(0, len(v.Generations)-2) {
		if v.Generations[i].Members != nil {
			v.Generations[i].Members, done = nil, true
		}
	}
	return done
}

func shrinkHistory(v *events.JobView) bool {
	g, i, c := len(v.Generations), len(v.Incidents), len(v.CountedFailures)
	v.Generations = newest(v.Generations, shortKept)
	v.Incidents = newest(v.Incidents, shortKept)
	v.CountedFailures = newest(v.CountedFailures, max(shortKept, v.Spec.Failures.SameStep))
	return len(v.Generations) < g || len(v.Incidents) < i || len(v.CountedFailures) < c
}

func newest[T any](all []T, n int) []T { return slices.Clone(all[max(0, len(all)-n):]) }

func shrinkFirst(v *events.JobView) bool {
	f := v.FirstError
	if f == nil || len(f.Lines) == 0 {
		return false
	}
	short := *f
	short.Lines = nil
	v.FirstError = &short
	return true
}
