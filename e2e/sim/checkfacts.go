package sim

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// fact checks a fact when it is stored, in the order of the log.
func (c *checker) fact(e events.Event) {
	if e.Number > 0 {
		key := string(e.Body.Type().Family()) + "/" + e.Entity
		if e.Body.Type().Family() == events.FamilyPlacement {
			key = "placement/*" // one document, the pool, numbers the facts about all jobs
		}
		last := c.number[key]
		if e.Number <= last {
			c.w.logf("%s #%d (%s) is stored once more", key, e.Number, e.Body.Type().Kind())
			return // a reader drops it
		}
		if e.Number != last+1 {
			c.fail(9, "%s: after fact %d comes %d (%s)", key, last, e.Number, e.Body.Type().Kind())
			return
		}
		c.number[key] = e.Number
	}
	switch b := e.Body.(type) {
	case events.RoundSealed:
		c.sealed(e.ID, b)
	case events.RoundOpened:
		if a := c.job(b.Job); b.Proposed == 0 || a.sealed[b.Proposed] != "" {
			c.fail(4, "%s was opened after it was sealed", b.Proposed)
		}
	case events.PlacementSet:
		c.job(b.Job).wanted[e.Number] = b.Workers
		seen := map[events.Place]bool{}
		for _, p := range b.Places {
			if seen[p] {
				c.fail(3, "%s has %s twice", b.Job, p)
			}
			seen[p] = true
		}
	case events.WorkerExited:
		c.job(b.Job).dead[b.Incarnation] = true
		c.job(b.Job).asked[b.Incarnation] = b.Asked
		c.planned(b.Job, b.Incarnation)
	case events.NodeLeft:
		c.leftWell[b.Incarnation] = true
	case events.NodeJoined:
		if c.lost[b.Incarnation] {
			c.blame.returns[b.Incarnation]++
		}
	case events.NodeLost:
		delete(c.leftWell, b.Incarnation)
		c.lost[b.Incarnation] = true
	case events.JobFailureCounted:
		c.countFailure(b)
	case events.JobRespawned:
		a := c.job(b.Job)
		if n := a.respawned[b.Dead]; n != 0 {
			c.fail(10, "%s at %s was replaced twice, by attempts %d and %d", b.Dead, b.Place, n, b.Attempt)
		}
		a.respawned[b.Dead] = b.Attempt
	case events.JobSucceeded:
		c.ended(b.Job, b.Type(), b.Reason)
	case events.JobFailed:
		c.ended(b.Job, b.Type(), b.Reason)
	case events.JobStopped:
		c.ended(b.Job, b.Type(), b.Reason)
	case events.IncidentOpened:
		c.incident(b)
	case events.IncidentClosed:
		c.incidentOver(b)
	}
}

// countFailure checks a failure that was counted.
func (c *checker) countFailure(b events.JobFailureCounted) {
	a := c.job(b.Job)
	if old, again := a.failures[b.Worker]; again {
		c.fail(10, "%s at %s was counted for %s and for %s", b.Worker, b.Place, old.Kind, b.Kind)
	}
	if other, again := a.culprit[b.Generation]; again && b.Generation > 0 {
		c.fail(10, "%s of %s was counted for %s and for %s", b.Generation, b.Job, other, b.Worker)
	}
	a.failures[b.Worker], a.culprit[b.Generation] = b, b.Worker
	if b.Kind == events.FailureLost && c.leftWell[b.Agent] {
		c.fail(10, "%s at %s was counted, but its agent %s has left as planned", b.Worker, b.Place, b.Agent)
	}
	c.planned(b.Job, b.Worker)
	c.blames(b)
}

// planned checks that a requested exit is not counted as a failure. Workers that were lost or hung
// are stopped after the failure was counted.
func (c *checker) planned(id events.JobID, worker events.Incarnation) {
	a := c.job(id)
	if b, ok := a.failures[worker]; ok && a.asked[worker] && b.Kind != events.FailureLost && b.Kind != events.FailureHang {
		c.fail(10, "%s at %s was counted for %s, but it was asked to stop", worker, b.Place, b.Kind)
	}
}

func (c *checker) ended(id events.JobID, t events.Type, reason string) {
	a := c.job(id)
	if a.end != "" {
		c.fail(7, "%s has ended twice: %s, then %s", id, a.end.Kind(), t.Kind())
	}
	if a.end = t; reason == "" {
		c.fail(8, "%s has %s without a reason", id, t.Kind())
	}
}

func (c *checker) incident(b events.IncidentOpened) {
	a := c.job(b.Job)
	if a.open || b.Incident != a.incidents+1 {
		c.fail(11, "%s opens incident %d after %d (open: %t)", b.Job, b.Incident, a.incidents, a.open)
	}
	a.open, a.incidents = true, b.Incident
}

func (c *checker) incidentOver(b events.IncidentClosed) {
	a := c.job(b.Job)
	if !a.open || b.Incident != a.incidents {
		c.fail(11, "%s closes incident %d, the last was %d (open: %t)", b.Job, b.Incident, a.incidents, a.open)
	}
	a.open = false
	p := b.Phases
	for _, ms := range []float64{p.Notice, p.Abort, p.Judge, p.Regroup, p.Sync, p.FirstStep} {
		if ms < 0 {
			c.fail(11, "incident %d of %s has a negative phase: %+v", b.Incident, b.Job, p)
		}
	}
}

// sealed checks the members of a generation.
func (c *checker) sealed(id string, b events.RoundSealed) {
	a := c.job(b.Job)
	if old := a.sealed[b.Generation]; old != "" {
		c.fail(1, "%s of %s was sealed by %s and by %s", b.Generation, b.Job, old, id)
		return
	}
	if b.Generation > 1 && a.sealed[b.Generation-1] == "" {
		c.fail(4, "%s of %s was sealed before %s", b.Generation, b.Job, b.Generation-1)
	}
	a.sealed[b.Generation] = id
	seen := map[events.Place]bool{}
	local, cross := map[events.NodeID]int{}, map[int]int{}
	for r, m := range b.Members {
		if m.Rank != r || m.LocalRank != local[m.Place.Node] || m.CrossRank != cross[m.LocalRank] {
			c.fail(2, "%s of %s: place %d in order has rank %d, local %d, cross %d", b.Generation, b.Job, r, m.Rank, m.LocalRank, m.CrossRank)
		}
		if seen[m.Place] {
			c.fail(2, "%s of %s has %s twice", b.Generation, b.Job, m.Place)
		}
		seen[m.Place] = true
		delete(a.respawned, m.Incarnation) // it is alive after all, and may die again
		local[m.Place.Node]++
		cross[m.LocalRank]++
	}
	j := c.w.jobOf(b.Job)
	if j == nil || j.spec.Recovery != spec.RecoveryInProcess {
		return
	}
	var held events.Commit
	for _, m := range b.Members {
		if m.Commit.Newer(held) {
			held = m.Commit
		}
	}
	for _, m := range b.Members {
		p := c.process(m.Incarnation)
		if p == nil || !p.alive {
			continue
		}
		if !p.waiting { // a join from before its generation was applied again; that is wrong only if it is known to be in it
			if g := p.group; g != nil && g.generation < b.Generation && c.good[b.Job] >= g.generation {
				c.fail(4, "%s of %s was sealed with %s, which still works in %s", b.Generation, b.Job, m.Place, g.generation)
			}
			continue
		}
		if s := p.commit; s != nil {
			has := events.Commit{Generation: events.Generation(s.generation), Step: s.step}
			if has.Newer(held) {
				c.fail(5, "%s of %s knows of commit %d.%d, but %s holds %d.%d", b.Generation, b.Job, held.Generation, held.Step, m.Place, s.generation, s.step)
			}
		}
	}
}

func (c *checker) process(id events.Incarnation) *process {
	for _, n := range c.w.nodes {
		if p := n.procs[id]; p != nil {
			return p
		}
	}
	return nil
}

// joins checks an agent's request to join.
func (c *checker) joins(j events.MemberJoin) {
	if c.w.jobOf(j.Job) == nil {
		c.fail(4, "%s joins %s, which nobody submitted", j.Place, j.Job)
	}
}

// launch checks that launches of a revision to a node are equal. Informational fields may be newer
// when a launch is generated again, because its text is not stored.
func (c *checker) launch(l events.Launch) {
	l.From, l.Cause, l.Trace, l.Via, l.Members = 0, events.Cause{}, "", "", slices.Clone(l.Members)
	if l.Phase == events.PhaseStop {
		l.Generation = 0 // no process runs in it
	}
	for i := range l.Members {
		if m := &l.Members[i]; m.Rank < 0 {
			m.Incarnation, m.Peers = "", nil
		}
	}
	data, err := json.Marshal(l)
	if err != nil {
		c.fail(0, "launch: %v", err)
		return
	}
	a := c.job(l.Job)
	key := launchKey{l.Node, l.Revision}
	if old, ok := a.launches[key]; ok && !bytes.Equal(old, data) {
		c.fail(4, "revision %d of the launch for %s says two things: %s and %s", l.Revision, l.Node, old, data)
	}
	a.launches[key] = data
}

type launchKey struct {
	node     events.NodeID
	revision uint64
}
