package screen

import (
	"fmt"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// JobCells are the cells of a job in a table: its id, state, workers, generation, step, number of
// unplanned incidents, and age. The workers are those that train, or that did last in a job that
// has ended.
func JobCells(p Palette, v events.JobView, now time.Time) []string {
	gen, step, age, members := "-", "-", "-", fmt.Sprint(view.Members(v))
	if v.State.Terminal() {
		members = "-"
		if n := view.LastWorld(v); n > 0 {
			members = fmt.Sprint(n)
		}
	}
	if v.Generation > 0 {
		gen = fmt.Sprint(uint64(v.Generation))
	}
	if v.Step > 0 {
		step = fmt.Sprint(v.Step)
	}
	if !v.Submitted.IsZero() {
		age = view.Span(now.Sub(v.Submitted))
	}
	return []string{
		string(v.Job), p.State(string(v.State)), members + "/" + view.WorkersRange(v.Spec.Workers), gen, step,
		fmt.Sprint(view.Unplanned(v)), age,
	}
}

// JobReason is why a job is in its state, or "" where the state says it.
func JobReason(p Palette, v events.JobView) string {
	if v.State == events.JobStateRunning || v.State == events.JobStateSucceeded {
		return ""
	}
	return p.Faint(v.Reason)
}
