package sim

import (
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// waitLimit is how long a job may wait while slots are free in a calm world: the reconciliation
// repairs the effect of a lost fact.
const waitLimit = 2 * controller.ReconcileEvery

// waiting checks the jobs that wait for a placement. Jobs of different sizes may block each other,
// so a job waits without need only if each of them would fit.
func (c *checker) waiting() {
	var all []events.JobID
	most := 0
	for _, j := range c.w.jobs {
		v := c.view(j)
		if v.State != events.JobStateWaiting || v.Spec.SelfRegistered() || len(c.slots.Jobs[j.id].Places) > 0 {
			delete(c.waitingSince, j.id)
			continue
		}
		all, most = append(all, j.id), max(most, v.Spec.Workers.Min)
	}
	for _, id := range all {
		if most > c.free {
			delete(c.waitingSince, id)
			continue
		}
		since, known := c.waitingSince[id]
		if !known {
			c.waitingSince[id] = c.w.now
			continue
		}
		if waits := c.w.now.Sub(since); waits > waitLimit {
			c.fail(15, "%s has waited for %s beside %d free slots (%q)", id, waits.Round(time.Millisecond), c.free, c.slots.Jobs[id].Waiting)
		}
	}
}

// freeSlots counts the slots that are unassigned and open for new work.
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
