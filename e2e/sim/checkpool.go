package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// checkPlacements checks, after a change of the pool, that no job has a slot that the scheduler
// knows to be excluded. (A node in quarantine keeps its workers, and one update may assign a slot
// and apply a quarantine, so quarantined nodes are not checked.)
func (c *checker) checkPlacements(s plan.State) {
	for _, id := range slices.Sorted(maps.Keys(s.View.Jobs)) {
		for _, p := range s.View.Jobs[id].Places {
			n := s.Nodes[p.Node]
			out := n.Excluded != "" || slices.ContainsFunc(n.QuarantinedSlots, func(b events.QuarantinedSlot) bool { return b.Slot == p.Slot })
			if out {
				c.fail(13, "%s has %s, and the node is %+v", id, p, n)
			}
		}
	}
}

// quarantineLateness is how long the end of a quarantine may go unnoticed in a calm world.
const quarantineLateness = 5 * time.Second

// overdueQuarantines lists the quarantines that should have ended.
func (c *checker) overdueQuarantines() []string {
	var out []string
	over := func(what string, q events.Quarantine) {
		if late := c.w.now.Sub(q.Until); late > quarantineLateness {
			out = append(out, fmt.Sprintf("%s is in quarantine %s after its end", what, late))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.nodes)) {
		v := c.nodes[id]
		if v.Quarantine != nil {
			over(id, *v.Quarantine)
		}
		for _, b := range v.QuarantinedSlots {
			over(fmt.Sprintf("%s/%d", id, b.Slot), b.Quarantine)
		}
	}
	return out
}

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
	free := map[events.NodeID]int{} // of the nodes that take new work
	for id, n := range s.Nodes {
		if n.Gone == "" && !n.Draining && n.Excluded == "" && !n.Suspected && n.Quarantine == nil {
			free[id] = n.Slots - len(n.QuarantinedSlots)
		}
	}
	sum := 0
	for _, row := range s.View.Jobs {
		for _, p := range row.Places {
			if _, open := free[p.Node]; open {
				sum--
			}
		}
	}
	for _, n := range free {
		sum += n
	}
	return sum
}
