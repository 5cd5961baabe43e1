package job

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/english"
)

// updatePendingSince records since when the job could train and does not: before its first
// generation, since it has places for enough workers; afterwards, since no generation works.
// Waiting for room before the first generation has no limit.
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

// notTraining reports whether a job that has had a generation has none that works: fewer than min
// members are there, or it would be sealed. During a planned change the members train on, unless
// one of them has ended.
func (t *transition) notTraining() bool {
	g := t.View.Generation
	switch {
	case g == 0:
		return false
	case t.Broken >= g, t.Pending.Proposed > g && !t.Pending.Planned:
		return true
	}
	return t.Pending.Proposed > g && slices.ContainsFunc(t.View.Workers, func(w tables.WorkerView) bool {
		return t.member(&w) && w.State.Ended()
	})
}

// sealDeadline returns when a job without a working generation fails; zero = never.
func (s State) sealDeadline() time.Time {
	limit := s.View.Spec.Elastic.StartWithin
	if s.View.Generation > 0 {
		limit = s.View.Spec.Elastic.Timeout
	}
	if limit == 0 || s.Pending.Since.IsZero() || !s.waitingOrRunning() {
		return time.Time{}
	}
	return s.Pending.Since.Add(limit.D())
}

// failUnsealed fails a job whose generation is not sealed in time.
func (t *transition) failUnsealed() {
	up := 0
	for w := range t.workers() {
		if !w.State.Ended() {
			up++
		}
	}
	e, next := t.View.Spec.Elastic, max(t.Pending.Proposed, t.View.Generation+1)
	reason := fmt.Sprintf("generation %s was not sealed within %s (elastic.startWithin)", next, e.StartWithin.D())
	if t.View.Generation > 0 {
		reason = fmt.Sprintf("was below min for %s (elastic.timeout): generation %s could not be sealed", e.Timeout.D(), next)
	}
	reason += fmt.Sprintf(": it needs %s, has %s and %d running", english.Plural(t.View.Spec.Workers.Min, "worker"), english.Plural(len(t.Placed.Places), "place"), up)
	t.endJob(events.JobStateFailed, errcode.Unavailable, reason+t.firstFailure())
}

// firstFailure describes the first failure, for the end of a reason.
func (t *transition) firstFailure() string {
	if t.View.FirstError == nil {
		return ""
	}
	return "; first failure: " + describeExit(t.View.FirstError)
}

// resetLimitExceeded ends a job that has regrouped, or is about to, more often than allowed, and
// reports whether it has. Every generation after the first counts, as in Horovod: planned ones too,
// and with in-process recovery one more where a replacement joins.
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
	t.endJob(events.JobStateFailed, errcode.Exhausted, reason+t.firstFailure())
	return true
}

// StepEvery is the least interval between writes of a job's newest step. Steps never wait for a
// write: replicas receive them by signals and keep them in memory, and the document only shows them
// to readers and to other replicas.
const StepEvery = 5 * time.Second

// Stall is a stall that was reported.
type Stall struct {
	Generation ident.Generation `json:"generation"`
	Detail     string           `json:"detail"`
}

// progressed applies a job's progress as a replica has received it.
func (t *transition) progressed(p events.Progress) {
	v := &t.View
	if v.State != events.JobStateRunning || p.Generation != v.Generation || t.now.Before(v.StepAt.Add(StepEvery)) {
		return
	}
	v.Reported, _ = events.MergeMetrics(v.Reported, p.Reported)
	v.Redundancy = events.NewerRedundancy(v.Redundancy, p.Known)
	defer t.publishProgress(false)
	if p.Step == 0 || (p.Generation == t.StepGeneration && p.Step <= v.Step) {
		return
	}
	if c := p.Commit; c != nil && t.inProcess() && c.Newer(t.Commit) {
		t.Commit = *c
	}
	t.recordStep(p.Generation, p.Step)
	t.View.Slowest = p.Slowest
}

// catchUp records the newest step and values that the replica has heard: the record lags behind by
// up to StepEvery, and a failure, an incident or the end is published with its step. Generations
// shorter than that are in the job's course by this alone.
func (t *transition) catchUp() {
	defer t.publishProgress(false)
	if t.in.Others == nil {
		return
	}
	p, ok := t.in.Others().(events.JobProgress)
	if !ok || p.Generation != t.View.Generation {
		return
	}
	later := maps.Clone(p.Reported)
	maps.DeleteFunc(later, func(name string, m events.Metric) bool { return !m.At.After(t.View.Reported[name].At) })
	t.View.Reported, _ = events.MergeMetrics(t.View.Reported, later)
	if p.Step == t.View.Step && p.At.Before(t.StepMade) {
		t.StepMade = p.At
	}
	if p.Step == 0 || !p.At.After(t.View.StepAt) {
		return
	}
	if p.Step > t.View.Step || t.StepGeneration < p.Generation {
		t.View.Step, t.StepGeneration, t.StepMade = p.Step, p.Generation, p.At
	}
	t.View.StepAt = p.At
}

func (t *transition) recordStep(g ident.Generation, step uint64) {
	if step != t.View.Step || g > t.StepGeneration {
		t.StepMade = t.now
	}
	t.View.Step, t.View.StepAt, t.StepGeneration = step, t.now, max(t.StepGeneration, g)
}

// Published is what the newest JobProgressed contained.
type Published struct {
	At   time.Time `json:"at"`
	Step uint64    `json:"step,omitempty"`
	// Arrival of the newest value in it.
	Value time.Time `json:"value,omitzero"`
}

// progressPoints is the number of points of the part of a job's course in which they are evenly
// spaced. A job of a week has 10,000 of them, and no reader draws more.
const progressPoints = 2000

// publishProgress publishes the job's newest step and values, if they have changed and the last
// time is long enough ago, or the job is about to end.
func (t *transition) publishProgress(ends bool) {
	v, last := &t.View, t.Published
	now := Published{At: t.now, Step: v.Step}
	for _, m := range v.Reported {
		if m.At.After(now.Value) {
			now.Value = m.At
		}
	}
	if now.Step == last.Step && now.Value.Equal(last.Value) {
		return
	}
	before := last.At
	if before.IsZero() {
		before = v.Submitted
	}
	if every := max(StepEvery, t.now.Sub(v.Submitted)/progressPoints); !ends && t.now.Before(before.Add(every)) {
		return
	}
	t.Published = now
	b := events.JobProgressed{Job: v.Job, Generation: v.Generation, Step: v.Step, Values: v.Reported}
	if v.Step > 0 {
		b.At = t.StepMade
	}
	t.publish(b)
}

// stepsStalled applies that a replica has received no step of a generation within the limit. It
// counts only if no replica has stored a later step, and if the generation is not known to be
// broken, or the regroup is overdue: a worker that hangs does not notice that the others have left.
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

// regroupOverdue reports whether the regroup after a broken generation takes longer than the last
// call and the back-off of the round.
func (t *transition) regroupOverdue() bool {
	since, e := t.Pending.Since, t.View.Spec.Elastic
	return t.inProcess() && !since.IsZero() && !t.now.Before(since.Add(e.LastCall.D()+e.BackOff(t.NoProgress+1)))
}

// countStall counts a stall against the job if all members rejoined after it, so that repeated
// stalls end the job. Otherwise it is counted against the members that did not.
func (t *transition) countStall(over ident.Generation) {
	if over == 0 || t.Stall.Generation != over {
		return
	}
	for w := range t.workers() {
		if !t.Slots[w.Place.String()].MissingSince.IsZero() {
			return
		}
	}
	if !t.claimFailure(over) {
		return
	}
	f := t.silentFailure(events.FailureHang, true)
	t.recordFailure(events.CountedFailure{At: t.now, Generation: over, Rank: -1, Step: f.step, Kind: f.kind, Detail: t.Stall.Detail, Poison: f.poison}, t.Stall.Detail)
}

// missed applies the newest list of members that keep a round from being sealed.
func (t *transition) missed(b events.RoundMissed) {
	if b.Proposed != t.View.Generation+1 {
		return
	}
	missing := map[ident.Place]ident.Incarnation{}
	for _, m := range b.Missing {
		missing[m.Place] = m.Incarnation
	}
	for w := range t.workers() {
		if !t.member(w) || w.State.Ended() {
			continue
		}
		stillMissing := missing[w.Place] == w.Incarnation
		t.updateSlot(w.Place, func(n *SlotRecord) {
			switch {
			case !stillMissing:
				n.MissingSince = time.Time{}
			case n.MissingSince.IsZero():
				n.MissingSince = t.now
			}
		})
	}
}
