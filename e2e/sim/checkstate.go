package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
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
			c.slots, c.free = s.View, func(asks *spec.GPU) int { return freeSlots(s, asks) }
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
	owner := map[ident.Place]ident.JobID{}
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
	if n := len(v.Members); n != s.Spec.Elastic.Whole(n) {
		c.fail(2, "%s of %s has %d members, no multiple of %d", v.Generation, v.Job, n, s.Spec.Elastic.MultipleOf)
	}
}

// wanted reports whether a placement from first to last allows n workers: an update applies several
// inputs, so a generation may be sealed before or after the placement in the same update.
func (c *checker) wanted(id ident.JobID, n int, first, last uint64) bool {
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
		if w.Incarnation != "" && (w.State == tables.WorkerStateFailed || w.State == tables.WorkerStateLost || c.lost[w.Agent]) {
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
			if j := c.w.jobOf(id); j != nil && j.spec.GPU != nil && !j.spec.GPU.Matches(modelOf(p.Node, int(p.Slot)), 0) {
				c.fail(3, "%s has %s, and asks for %s", id, p, j.spec.GPU)
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
	var all []ident.JobID
	most, free := 0, math.MaxInt // of all that wait
	for _, j := range c.w.jobs {
		v := c.view(j)
		if v.State != events.JobStateWaiting || v.Spec.SelfRegistered() || len(c.slots.Jobs[j.id].Places) > 0 {
			delete(c.waitingSince, j.id)
			continue
		}
		all, most, free = append(all, j.id), max(most, v.Spec.Workers.Min), min(free, c.free(v.Spec.GPU))
	}
	for _, id := range all {
		if most > free {
			delete(c.waitingSince, id)
			continue
		}
		since, known := c.waitingSince[id]
		if !known {
			c.waitingSince[id] = c.w.now
			continue
		}
		if waits := c.w.now.Sub(since); waits > waitLimit {
			c.fail(15, "%s has waited for %s beside %d free slots (%q)", id, waits.Round(time.Millisecond), free, c.slots.Jobs[id].Waiting)
		}
	}
}

// starts checks a process that an agent starts.
func (c *checker) starts(p *process) {
	a := p.start
	place := fmt.Sprint(a.Job, a.Place)
	if old := c.last[place]; old != nil && old.alive && old.node.incarnation == p.node.incarnation {
		c.fail(12, "%s of %s: attempt %d is started while attempt %d lives", a.Place, a.Job, a.Attempt, old.start.Attempt)
	}
	c.last[place] = p
	c.oneCopy(p)
	key := fmt.Sprint(p.agent, a.Job, a.Place, a.Attempt, a.Generation)
	if c.begun[key] != nil {
		c.fail(12, "%s of %s: attempt %d of generation %s is started twice", a.Place, a.Job, a.Attempt, a.Generation)
	}
	c.begun[key] = p
	c.processes[a.Worker] = p
}

// committed checks the ledger of a commit: a finished epoch has every sample exactly once.
func (c *checker) committed(j *jobRun, s snapshot) {
	for i, e := range s.epochs {
		if e != j.total() {
			c.fail(6, "%s g%d: epoch %d counts %d samples of %d (hash %x, not %x)", j.id, s.generation, i, e.count, j.total().count, e.sum, j.total().sum)
		}
	}
	if s.account.count > s.samples {
		c.fail(6, "%s g%d: epoch %d counts %d samples of %d", j.id, s.generation, s.epoch, s.account.count, s.samples)
	}
}

// watchEnd checks periodically whether all jobs have ended.
func (c *checker) watchEnd() {
	c.waiting()
	if left := c.left(); len(left) > 0 {
		c.w.after(250*time.Millisecond, c.watchEnd)
		return
	}
	for _, j := range c.w.jobs {
		c.final(j)
	}
	if late := c.overdueQuarantines(); len(late) > 0 && c.w.now.Sub(epoch.Add(c.w.sc.calmAt)) > quarantineLateness {
		c.fail(13, "%s", strings.Join(late, "; "))
	}
	c.w.over = true
}

// left lists everything that has not ended.
func (c *checker) left() []string {
	var left []string
	for _, j := range c.w.jobs {
		v := c.view(j)
		if !v.State.Terminal() {
			left = append(left, fmt.Sprintf("%s is %q (%s)", j.id, v.State, v.Reason))
		}
		if v.State.Terminal() && !c.log.Job(j.id).State.Terminal() { // its replica died before publishing the fact
			left = append(left, fmt.Sprintf("no fact says that %s is %s", j.id, v.State))
		}
		if row, ok := c.slots.Jobs[j.id]; ok && v.State.Terminal() {
			left = append(left, fmt.Sprintf("%s has ended and still has %d places", j.id, len(row.Places)))
		}
	}
	for _, n := range c.w.nodes {
		for p := range n.living {
			left = append(left, "a process at "+p.start.Place.String())
		}
	}
	return left
}

func (c *checker) view(j *jobRun) events.JobView { return c.states[string(j.id)].View }

// unfinished reports what has not ended within calmTimeout.
func (c *checker) unfinished() {
	if left := c.left(); len(left) > 0 {
		c.fail(8, "%s after calm: %s", calmTimeout, strings.Join(left, "; "))
	}
}

// final checks a job that has ended.
func (c *checker) final(j *jobRun) {
	v := c.view(j)
	if c.log.Job(j.id).Open != 0 || v.OpenIncident != nil {
		c.fail(11, "%s has ended with an open incident", j.id)
	}
	calm := epoch.Add(c.w.sc.calmAt)
	if v.State == events.JobStateFailed && v.Code == errcode.Unavailable && v.Ended.After(calm.Add(20*time.Second)) {
		c.fail(8, "%s was stuck in a calm world: %s", j.id, v.Reason)
	}
	if v.State != events.JobStateSucceeded || j.spec.Recovery != spec.RecoveryInProcess {
		return
	}
	done := 0
	for _, e := range v.Ledger.Epochs {
		if e.Done && (ledger{e.Count, e.Sum}) == j.total() {
			done++
		}
	}
	if done != j.shape.epochs {
		c.fail(6, "%s has succeeded with %d of %d whole epochs in its ledger", j.id, done, j.shape.epochs)
	}
}
