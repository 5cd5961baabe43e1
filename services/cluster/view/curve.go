package view

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// Curve is the course of one value that a job's program has reported.
type Curve struct {
	Name   string       `json:"name"`
	Points []CurvePoint `json:"points"` // by time
}

// CurvePoint is a value of a curve.
type CurvePoint struct {
	Time       time.Time        `json:"time"` // of the event
	Generation ident.Generation `json:"generation"`
	Step       uint64           `json:"step"`
	Value      float64          `json:"value"`
	Rank       ident.Rank       `json:"rank"` // of the worker that reported it; NoRank = of the whole job
}

// StepRate is the name of the curve that is computed from the steps.
const StepRate = "steps/s"

// Curves returns the course of each value by name, that of StepRate first, from a job's
// JobProgressed in order. A value that was not reported again has no further point.
func Curves(facts []events.Event) []Curve {
	points := map[string][]CurvePoint{}
	var before events.Event
	for _, e := range facts {
		b, ok := e.Body.(events.JobProgressed)
		if !ok {
			continue
		}
		for name, m := range b.Values {
			p := CurvePoint{e.Time, b.Generation, m.Step, m.Value, m.Rank}
			if all := points[name]; len(all) == 0 || !all[len(all)-1].repeats(p) {
				points[name] = append(all, p)
			}
		}
		if last, ok := before.Body.(events.JobProgressed); ok && b.Step > last.Step && stepTime(e).After(stepTime(before)) {
			rate := float64(b.Step-last.Step) / stepTime(e).Sub(stepTime(before)).Seconds()
			points[StepRate] = append(points[StepRate], CurvePoint{e.Time, b.Generation, b.Step, rate, ident.NoRank})
		}
		before = e
	}
	all := []Curve{} // not null in JSON
	for _, name := range slices.Sorted(maps.Keys(points)) {
		all = append(all, Curve{name, points[name]})
	}
	slices.SortStableFunc(all, func(a, b Curve) int { return cmp.Compare(b.computed(), a.computed()) })
	return all
}

// stepTime is when the step of a JobProgressed was made, as far as it says so: it may be published
// later, with the end of its job.
func stepTime(e events.Event) time.Time {
	if b, ok := e.Body.(events.JobProgressed); ok && !b.At.IsZero() {
		return b.At
	}
	return e.Time
}

func (p CurvePoint) repeats(q CurvePoint) bool {
	return p.Step == q.Step && p.Value == q.Value && p.Rank == q.Rank
}

// computed is 1 if the program has not reported the values itself.
func (c Curve) computed() int {
	if c.Name == StepRate {
		return 1
	}
	return 0
}
