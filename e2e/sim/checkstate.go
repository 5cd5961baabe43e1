package sim

import (
	"encoding/json"
	"reflect"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/discovery/liveness"
	"github.com/regroup-io/regroup/services/registry/job"
	"github.com/regroup-io/regroup/services/rendezvous/round"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// saved checks a change of a document.
func (c *checker) saved(bucket, key string, value []byte) {
	switch bucket {
	case events.BucketPlacements:
		if value != nil {
			s := state[plan.State](c, value)
			c.checkPlacements(s)
			c.slots, c.free = s.View, freeSlots(s)
			c.pool(c.slots)
		}
	case events.BucketNodes:
		if value != nil {
			c.nodes[key] = state[liveness.State](c, value).View
		} else {
			delete(c.nodes, key)
		}
	case events.BucketRounds:
		s := state[round.State](c, value)
		if value != nil {
			c.round(c.rounds[key], s)
		}
		c.rounds[key] = s
	case events.BucketJobs:
		s, old := state[job.State](c, value), c.states[key]
		if value != nil {
			c.registry(old, s)
		} else if old.View.State != "" {
			c.fail(7, "%s is %s and was removed", key, old.View.State)
		}
		c.states[key] = s
	}
}

// state decodes a document; the state of a missing one is the zero value.
func state[S any](c *checker, stored []byte) S {
	var s S
	if stored == nil {
		return s
	}
	d, err := document.Decode(stored)
	if err == nil {
		err = json.Unmarshal(d.State, &s)
	}
	if p, ok := any(s).(controller.Packer[S]); ok && err == nil {
		s, err = p.Unpack()
	}
	if err != nil {
		c.fail(0, "document: %v", err)
	}
	return s
}

func (c *checker) pool(v events.PoolView) {
	owner := map[events.Place]events.JobID{}
	for id, row := range v.Jobs {
		if len(row.Places) > row.Workers.Max {
			c.fail(3, "%s has %d places, it wants at most %d", id, len(row.Places), row.Workers.Max)
		}
		for _, p := range row.Places {
			if other, taken := owner[p]; taken {
				c.fail(3, "%s belongs to %s and to %s", p, min(id, other), max(id, other))
			}
			owner[p] = id
			if n := c.w.nodeOf(p.Node); n != nil && int(p.Slot) >= n.slots {
				c.fail(3, "%s does not exist", p)
			}
		}
	}
}

func (c *checker) round(old, s round.State) {
	v, o := s.View, old.View
	c.checkRendezvous(old, s)
	c.good[v.Job] = old.LastGood
	switch {
	case v.Generation < o.Generation: // an update applies several inputs, so it may seal several
		c.fail(4, "%s: generation %s follows %s", v.Job, v.Generation, o.Generation)
	case v.Generation == o.Generation && v.Generation > 0 && !reflect.DeepEqual(v.Members, o.Members):
		c.fail(4, "%s: the members of %s were changed after it was sealed", v.Job, v.Generation)
	case v.Proposed != 0 && v.Proposed != v.Generation+1:
		c.fail(4, "%s: %s is proposed after %s", v.Job, v.Proposed, v.Generation)
	case o.State == events.RoundStateClosed && v.State != events.RoundStateClosed:
		c.fail(7, "%s: the round was opened after it was closed", v.Job)
	}
	if n := len(v.Members); v.Generation > o.Generation && (s.Nodes == nil || n < s.Workers.Min || n > s.Workers.Max) && !c.wanted(v.Job, n, old.Placement, s.Placement) {
		c.fail(2, "%s of %s has %d members, %d:%d are wanted", v.Generation, v.Job, n, s.Workers.Min, s.Workers.Max)
	}
}

// wanted reports whether a placement from first to last allows n workers: an update applies several
// inputs, so a generation may be sealed before or after the placement in the same update.
func (c *checker) wanted(id events.JobID, n int, first, last uint64) bool {
	for number, w := range c.log.Job(id).Wanted {
		if number >= first && number <= last && w.Min <= n && n <= w.Max {
			return true
		}
	}
	return false
}

func (c *checker) registry(old, s job.State) {
	v, o := s.View, old.View
	if o.State.Terminal() && (v.State != o.State || v.Reason != o.Reason || !v.Ended.Equal(o.Ended)) {
		c.fail(7, "%s was %s and is %s", v.Job, o.State, v.State)
	}
	a := c.job(v.Job)
	for _, w := range v.Workers {
		// One update may apply the loss of a node and its return: then its worker is counted
		// although it is alive.
		if w.Incarnation != "" && (w.State == events.WorkerStateFailed || w.State == events.WorkerStateLost || c.lost[w.Agent]) {
			a.dead[w.Incarnation] = true
		}
	}
	for _, n := range s.Slots {
		for _, i := range n.Ended {
			a.dead[i] = true
		}
	}
	// A hang after which all workers came back, and generations without progress, count against no
	// worker.
	a.countedFailures += max(0, len(v.Failures)-len(o.Failures)-max(0, nobodys(v.CountedFailures)-nobodys(o.CountedFailures)))
	if a.countedFailures > len(a.dead) {
		c.fail(10, "%s counted %d failures, %d of its workers have ended", v.Job, a.countedFailures, len(a.dead))
	}
	if m := v.Spec.Failures.Max; m != nil && len(v.Failures) > *m && !v.State.Terminal() {
		c.fail(10, "%s has %d failures of %d allowed and is %s", v.Job, len(v.Failures), *m, v.State)
	}
}

// nobodys counts the failures that name no slot.
func nobodys(all []events.CountedFailure) (n int) {
	for _, c := range all {
		if c.Place == nil {
			n++
		}
	}
	return n
}
