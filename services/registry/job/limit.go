package job

import (
	"fmt"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
)

// window keeps the time since which the job could train and does not: before its first generation, that there are places
// for enough workers; after it, that nothing works. Waiting for room before the first generation has no limit.
func (t *turn) window() {
	waits := t.idle()
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

// idle tells whether a job that has had a generation has none that works: fewer than min are there, else it would be
// sealed. The members of one work on through a planned change, unless one of them has ended meanwhile.
func (t *turn) idle() bool {
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

// sealBy is when a job without a working generation fails; zero = never.
func (s State) sealBy() time.Time {
	limit := s.View.Spec.Elastic.StartWithin
	if s.View.Generation > 0 {
		limit = s.View.Spec.Elastic.Timeout
	}
	if limit == 0 || s.Pending.Since.IsZero() || (s.View.State != events.JobStateWaiting && s.View.State != events.JobStateRunning) {
		return time.Time{}
	}
	return s.Pending.Since.Add(limit.D())
}

// neverSealed ends a job whose workers do not come together.
func (t *turn) neverSealed() {
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
		reason += "; first failure: " + died(t.View.FirstError)
	}
	t.end(events.JobStateFailed, events.Unavailable, reason)
}

// resets ends a job that has regrouped, or is about to, more often than it may, and tells whether it has. Every generation
// after the first is one, as Horovod counts them: planned ones too, and with in-process recovery one more where a
// replacement is taken in.
func (t *turn) resets() bool {
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
		reason += "; first failure: " + died(t.View.FirstError)
	}
	t.end(events.JobStateFailed, events.Exhausted, reason)
	return true
}
