package sim

import (
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// besideFor is how long a job may wait beside free slots in a calm world: a comparison of the
// records makes up for a fact that was lost.
const besideFor = 2 * controller.ReconcileEvery

// waiting looks at the jobs that wait to be placed. Jobs of different sizes may hold each other
// back, so only if all that wait would fit does one of them wait for nothing.
func (c *checker) waiting() {
	var all []events.JobID
	most := 0
	for _, j := range c.w.jobs {
		v := c.view(j)
		if v.State != events.JobStateWaiting || v.Spec.External() || len(c.slots.Jobs[j.id].Places) > 0 {
			delete(c.beside, j.id)
			continue
		}
		all, most = append(all, j.id), max(most, v.Spec.Workers.Min)
	}
	for _, id := range all {
		if most > c.free {
			delete(c.beside, id)
			continue
		}
		since, known := c.beside[id]
		if !known {
			c.beside[id] = c.w.now
			continue
		}
		if waits := c.w.now.Sub(since); waits > besideFor {
			c.fail(15, "%s has waited for %s beside %d free slots (%q)", id, waits.Round(time.Millisecond), c.free, c.slots.Jobs[id].Waiting)
		}
	}
}

// freeSlots counts the slots that new work may go to and nobody has.
func freeSlots(s plan.State) int {
	free := 0
	for _, n := range s.Nodes {
		if n.Gone == "" && !n.Draining && n.Excluded == "" && !n.Suspected && n.Quarantine == nil {
			free += n.Slots - len(n.QuarantinedSlots)
		}
	}
	for _, row := range s.View.Jobs {
		for _, p := range row.Places {
			if n := s.Nodes[p.Node]; n.Gone == "" && !n.Draining && n.Excluded == "" && !n.Suspected && n.Quarantine == nil {
				free--
			}
		}
	}
	return free
}
