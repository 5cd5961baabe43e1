package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
)

// Forecast is what the pool would do with a job that were submitted now.
type Forecast struct {
	Workers spec.Workers `json:"workers"`
	Places  ident.Places `json:"places,omitempty"`  // that it would have at once; empty = it would wait
	Waiting string       `json:"waiting,omitempty"` // why it would wait, or have fewer than it wants
	Ahead   int          `json:"ahead,omitempty"`   // jobs that wait and come before it

	// Of a job that would wait: jobs of which the end of any one would let it start, the oldest
	// first, at most endsTried.
	Ends []ident.JobID `json:"ends,omitempty"`
	// Otherwise how many jobs must have ended if the oldest that has slots is always the next to
	// end; 0 = it would not start on these nodes, or after more than oldestTried.
	Ended int `json:"ended,omitempty"`
}

const (
	endsTried   = 100
	oldestTried = 1000
)

// Seen returns the pool as its records show it: it decides as the scheduler's own does, which has
// beside it only what explains decisions, such as traces. Jobs that have ended do not count.
func Seen(nodes []events.NodeView, jobs []events.JobView, pool events.PoolView) State {
	known := make([]events.Input, len(nodes))
	for i, n := range nodes {
		known[i] = NodeInput(n, 1)
	}
	jobs = slices.DeleteFunc(slices.Clone(jobs), func(v events.JobView) bool { return v.State == "" || v.State.Terminal() })
	slices.SortStableFunc(jobs, func(a, b events.JobView) int {
		return cmp.Or(a.Submitted.Compare(b.Submitted), cmp.Compare(a.Job, b.Job))
	})
	placed := make([]Placed, len(jobs))
	for i, j := range jobs {
		placed[i].Submitted = events.JobSubmitted{Job: j.Job, Spec: j.Spec, By: j.By}
		if row := pool.Jobs[j.Job]; len(row.Places) > 0 {
			placed[i].Set = &events.PlacementSet{Job: j.Job, Places: row.Places, Workers: row.Workers}
		}
	}
	s := Recalled(known, placed)
	queued := map[ident.JobID]bool{}
	for _, id := range pool.Queue {
		queued[id] = true
	}
	for i := range s.Queue { // a gang that is below its min and not queued has lost what may be back
		j := &s.Queue[i]
		row, known := pool.Jobs[j.ID]
		j.Placed = known && !queued[j.ID]
		j.Returning = j.Placed && len(row.Places) < row.Workers.Min
	}
	return s
}

// Predict returns what a pool would do with a job, and how the pool would be then. seen returns the
// pool, a new one each time.
func Predict(seen func() State, id ident.JobID, job spec.Job, now time.Time) (Forecast, events.PoolView) {
	submit := func(s State) State {
		s, _ = Machine{}.Step(s, events.Input{Body: events.JobSubmitted{Job: id, Spec: job}}, now)
		return s
	}
	end := func(s State, ended ident.JobID) State {
		s, _ = Machine{}.Step(s, events.Input{Body: events.JobStopped{JobEnd: events.JobEnd{Job: ended}}}, now)
		return s
	}
	s := submit(seen())
	row, then := s.View.Jobs[id], s.View
	then.Jobs = maps.Clone(then.Jobs) // what follows changes it
	f := Forecast{Workers: row.Workers, Places: row.Places, Waiting: row.Waiting}
	if len(f.Places) > 0 {
		return f, then
	}
	f.Ahead = max(0, slices.Index(s.View.Queue, id))
	running := s.withSlots()
	for _, other := range running[:min(len(running), endsTried)] {
		if t := submit(end(seen(), other)); len(t.View.Jobs[id].Places) > 0 {
			f.Ends = append(f.Ends, other)
		}
	}
	for n := 1; n <= oldestTried && len(f.Ends) == 0; n++ {
		running := s.withSlots()
		if len(running) == 0 {
			break
		}
		if s = end(s, running[0]); len(s.View.Jobs[id].Places) > 0 {
			f.Ended = n
			break
		}
	}
	return f, then
}

// withSlots returns the jobs that have slots, in the order of their submission.
func (s State) withSlots() (all []ident.JobID) {
	for i := range s.Queue {
		if id := s.Queue[i].ID; len(s.View.Jobs[id].Places) > 0 {
			all = append(all, id)
		}
	}
	return all
}
