package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// starts checks a process that an agent starts.
func (c *checker) starts(p *process) {
	a := p.start
	place := fmt.Sprint(a.Job, a.Place)
	if old := c.last[place]; old != nil && old.alive && old.node.incarnation == p.node.incarnation {
		c.fail(12, "%s of %s: attempt %d is started while attempt %d lives", a.Place, a.Job, a.Attempt, old.start.Attempt)
	}
	c.last[place] = p
	c.oneCopy(p)
	key := fmt.Sprint(p.node.agent, a.Job, a.Place, a.Attempt, a.Generation)
	if c.begun[key] != nil {
		c.fail(12, "%s of %s: attempt %d of generation %s is started twice", a.Place, a.Job, a.Attempt, a.Generation)
	}
	c.begun[key] = p
	c.processes[a.Worker] = agentProcess{p, p.node.agent}
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
	if v.State == events.JobStateFailed && v.Code == events.Unavailable && v.Ended.After(calm.Add(20*time.Second)) {
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
