package job

import (
	"fmt"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
)

// updatePendingSince keeps the time since which the job could train and does not: before its first
// generation, that there are places for enough workers; after it, that nothing works. Waiting for
// room before the first generation has no limit.
func (t *transition) updatePendingSince() {
	waits := t.notTraining()
	if t.View.Generation == 0 {
		waits = len(t.Placed.Places) >= t.View.Spec.Workers.Min
	}
	switch {
	case !waits:
		t.Pending.Since = time.Time{}
	case t.Pending.Since.IsZero():
		t.Pending.Since = t.now
	}
}

// notTraining tells whether a job that has had a generation has none that works: fewer than min are
// there, else it would be sealed. The members of one work on through a planned change, unless one
// of them has ended meanwhile.
func (t *transition) notTraining() bool {
	g := t.View.Generation
	switch {
	case g == 0:
		return false
	case t.Broken >= g, t.Pending.Proposed > g && !t.Pending.Planned:
		return true
	}
	return t.Pending.Proposed > g && slices.ContainsFunc(t.View.Workers, func(w events.WorkerView) bool {
		return t.member(&w) && w.State.Ended()
	})
}

// sealDeadline is when a job without a working generation fails; zero = never.
func (s State) sealDeadline() time.Time {
	limit := s.View.Spec.Elastic.StartWithin
	if s.View.Generation > 0 {
		limit = s.View.Spec.Elastic.Timeout
	}
	if limit == 0 || s.Pending.Since.IsZero() || (s.View.State != events.JobStateWaiting && s.View.State != events.JobStateRunning) {
		return time.Time{}
	}
	return s.Pending.Since.Add(limit.D())
}

// failUnsealed ends a job whose workers do not come together.
func (t *transition) failUnsealed() {
	up := 0
	for i := range t.View.Workers {
		if !t.View.Workers[i].State.Ended() {
			up++
		}
	}
	e, next := t.View.Spec.Elastic, max(t.Pending.Proposed, t.View.Generation+1)
	reason := fmt.Sprintf("generation %s was not sealed within %s (elastic.startWithin)", next, e.StartWithin.D())
	if t.View.Generation > 0 {
		reason = fmt.Sprintf("was below min for %s (elastic.timeout): generation %s could not be sealed", e.Timeout.D(), next)
	}
	reason += fmt.Sprintf(": it needs %d workers, has %d places, and %d workers run", t.View.Spec.Workers.Min, len(t.Placed.Places), up)
	if t.View.FirstError != nil {
		reason += "; first failure: " + describeExit(t.View.FirstError)
	}
	t.endJob(events.JobStateFailed, events.Unavailable, reason)
}

// resetLimitExceeded ends a job that has regrouped, or is about to, more often than it may, and
// tells whether it has. Every generation after the first is one, as Horovod counts them: planned
// ones too, and with in-process recovery one more where a replacement is taken in.
func (t *transition) resetLimitExceeded() bool {
	limit, next := t.View.Spec.Elastic.ResetLimit, max(t.View.Generation, t.Pending.Proposed)
	if limit == nil || t.View.Generation == 0 || int(next)-1 <= *limit {
		return false
	}
	why := t.Pending.Cause
	if g := t.generation(next); g != nil {
		why = g.Cause.Kind
	}
	reason := fmt.Sprintf("the reset limit is used up: %s (%s) would be regroup %d, elastic.resetLimit allows %d", next, why, next-1, *limit)
	if t.View.FirstError != nil {
		reason += "; first failure: " + describeExit(t.View.FirstError)
	}
	t.endJob(events.JobStateFailed, events.Exhausted, reason)
	return true
}

// StepEvery is how often a job's newest step is stored at most. No step waits for it: replicas hear
// of steps and keep them in memory, this only lets others read it, and tells replicas of each
// other's hearing.
const StepEvery = 5 * time.Second

// Stall is a standstill that was told.
type Stall struct {
	Generation events.Generation `json:"generation"`
	Detail     string            `json:"detail"`
}

// progressed takes in how far a job is, as a replica has heard it.
func (t *transition) progressed(p events.Progress) {
	v := &t.View
	t.stepObserved(p)
	if v.State != events.JobStateRunning || p.Generation != v.Generation || t.now.Before(v.StepAt.Add(StepEvery)) {
		return
	}
	v.Reported, _ = events.MergeMetrics(v.Reported, p.Reported)
	if p.Step == 0 || (p.Generation == t.StepGeneration && p.Step <= v.Step) {
		return
	}
	if c := p.Commit; c != nil && t.inProcess() && c.Newer(t.Commit) {
		t.Commit = *c
	}
	t.recordStep(p.Generation, p.Step)
	t.View.Slowest = p.Slowest
}

// recordStep notes the newest step that was made.
func (t *transition) recordStep(g events.Generation, step uint64) {
	t.View.Step, t.View.StepAt, t.StepGeneration = step, t.now, max(t.StepGeneration, g)
}

// stepsStalled takes in that a replica has heard of no step of a generation for as long as the job
// allows. It counts only if no replica has stored a later step, and if nothing else is known to
// have broken the generation, or if that did not bring everybody back in time: who hangs does not
// hear that the others have left.
func (t *transition) stepsStalled(b events.StepsStalled) {
	limit, v := t.View.Spec.Health.Hang.D(), &t.View
	switch {
	case limit == 0, b.For.D() < limit, v.State != events.JobStateRunning:
		return
	case b.Generation != v.Generation, b.Generation <= t.Stall.Generation, t.notTraining() && !t.regroupOverdue():
		return
	case t.StepGeneration == b.Generation && v.Step > b.Step:
		return
	}
	if g := t.generation(b.Generation); g != nil && t.now.Before(g.Sealed.Add(limit-v.TimeWithoutStep.D())) {
		return
	}
	last := max(b.Step, v.Step)
	t.Stall = Stall{Generation: b.Generation, Detail: fmt.Sprintf("no worker has made a step for %s, the last one was %d (health.hang is %s)",
		b.For.D().Round(time.Second), last, limit)}
	t.publish(events.JobStalled{Job: v.Job, Generation: b.Generation, Step: last, Detail: t.Stall.Detail})
}

// regroupOverdue tells whether a generation in place of a broken one takes longer than the round
// itself waits for those that it can do without, and before it tries again.
func (t *transition) regroupOverdue() bool {
	since, e := t.Pending.Since, t.View.Spec.Elastic
	return t.inProcess() && !since.IsZero() && !t.now.Before(since.Add(e.LastCall.D()+e.BackOff(t.NoProgress+1)))
}

// countStall charges a standstill to the job as a whole when all members came back from it, so that
// an endless one ends the job. If some did not, it is charged to them.
func (t *transition) countStall(over events.Generation) {
	if over == 0 || t.Stall.Generation != over {
		return
	}
	for i := range t.View.Workers {
		if !t.Slots[t.View.Workers[i].Place.String()].MissingSince.IsZero() {
			return
		}
	}
	if !t.claimFailure(over) {
		return
	}
	f := t.silentFailure(events.FailureHang, true)
	t.recordFailure(events.CountedFailure{At: t.now, Generation: over, Rank: -1, Step: f.step, Kind: f.kind, Detail: t.Stall.Detail, Poison: f.poison}, t.Stall.Detail)
}

// missed takes in who is asked for in vain while a round cannot be sealed: each list replaces the
// one before.
func (t *transition) missed(b events.RoundMissed) {
	if b.Proposed != t.View.Generation+1 {
		return
	}
	missing := map[events.Place]events.Incarnation{}
	for _, m := range b.Missing {
		missing[m.Place] = m.Incarnation
	}
	for i := range t.View.Workers {
		w := &t.View.Workers[i]
		if !t.member(w) || w.State.Ended() {
			continue
		}
		gone := missing[w.Place] == w.Incarnation
		t.updateSlot(w.Place, func(n *SlotRecord) {
			switch {
			case !gone:
				n.MissingSince = time.Time{}
			case n.MissingSince.IsZero():
				n.MissingSince = t.now
			}
		})
	}
}
