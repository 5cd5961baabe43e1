package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
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
