package job

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/english"
)

// failuresKept is how many counted failures a view keeps, unless failures.sameStep needs more.
const failuresKept = 64

type failure struct {
	kind   events.FailureKind
	step   uint64            // newest step that the generation could return to
	poison bool              // the data or the code may be the cause
	agent  ident.Incarnation // that ran the worker; empty = the one in its view
}

func (t *transition) exitFailure(b events.WorkerExited) failure {
	f := failure{kind: events.FailureCrash, poison: true}
	switch {
	case b.NodeFault:
		f.kind, f.poison = events.FailureStart, false
	case b.OOM:
		f.kind = events.FailureOOM
	case b.Exception.SilentCorruption():
		f.kind, f.poison = events.FailureCorrupt, false
	case b.Signal != "":
		f.kind, f.poison = events.FailureSignal, slices.Contains(tables.OwnSignals, b.Signal)
	}
	switch {
	case !t.inProcess():
		// Each program has its own checkpoints: it resumes at about the last step that it reported.
		f.step = b.Step
		// A program that reports no steps would seem to fail at one step always.
		f.poison = f.poison && (b.Step > 0 || t.View.Step > 0)
	case b.Generation == 0:
		// A newcomer that dies while it prefetches the state does not end a job that makes steps.
		f.poison = f.poison && t.LastGood == 0
	default:
		if b.Generation >= t.View.Generation && b.Commit.Newer(t.Commit) {
			t.Commit = b.Commit
		}
		f.step = t.Commit.Step
	}
	return f
}

// silentFailure returns the failure of workers whose end no exit reports.
func (t *transition) silentFailure(kind events.FailureKind, member bool) failure {
	t.catchUp()
	f := failure{kind: kind, poison: kind == events.FailureHang}
	switch {
	case !t.inProcess():
		f.step = t.View.Step
	case member:
		f.step = t.Commit.Step
	}
	return f
}

// countFailure counts one failure against the budget, of an incarnation that was in generation g (0
// = in none), and reports whether the job goes on. All that breaks in one generation is one
// failure, as torchrun counts restarts and Horovod resets: the other members end because of the
// first. An incarnation is counted at most once.
func (t *transition) countFailure(w *tables.WorkerView, g ident.Generation, f failure) bool {
	if !t.publishFailure(w, g, f) {
		return true
	}
	return t.withinBudget(g, describeExit(w))
}

// publishFailure records and publishes a failure, and reports whether it counts.
func (t *transition) publishFailure(w *tables.WorkerView, g ident.Generation, f failure) bool {
	t.recordFirstError(w)
	if t.Slots[w.Place.String()].JudgedIncarnation == w.Incarnation || !t.claimFailure(g) {
		return false
	}
	place, rank := w.Place, w.Rank
	if v := t.generation(g); v != nil && rank < 0 {
		rank = rankOf(v.Members, w.WorkerRef, -1) // in that generation
	}
	t.publish(events.JobFailureCounted{
		Job: t.View.Job, Place: place, Worker: w.Incarnation, Agent: cmp.Or(f.agent, w.Agent), Generation: g, Rank: rank, Step: f.step,
		Kind: f.kind, Detail: w.Detail, By: t.View.By,
	})
	t.addFailure(events.CountedFailure{
		At: t.now, Place: &place, Worker: w.Incarnation, Generation: g, Rank: rank, Step: f.step, Kind: f.kind, Detail: w.Detail,
		Poison: f.poison,
	})
	return true
}

// generationLeft returns the newest generation that a worker was in, so that what breaks it is one
// failure, also where the others have formed the next one before it was told. 0 = in none, or in
// one that had another failure, after which the worker has ended by itself.
func (t *transition) generationLeft(w *tables.WorkerView) ident.Generation {
	if !t.member(w) && w.Generation <= t.CountedGeneration {
		return 0
	}
	return w.Generation
}

// claimFailure records a fault of a generation as counted, and reports whether it was not before.
func (t *transition) claimFailure(g ident.Generation) bool {
	if g != 0 && g <= t.CountedGeneration {
		return false
	}
	t.CountedGeneration = max(t.CountedGeneration, g)
	return true
}

// recordFailure records a counted failure and ends the job if the budget is used up.
func (t *transition) recordFailure(c events.CountedFailure, last string) bool {
	t.addFailure(c)
	return t.withinBudget(c.Generation, last)
}

func (t *transition) addFailure(c events.CountedFailure) {
	budget := t.View.Spec.Failures
	from := t.now.Add(-budget.Per.D())
	t.View.Failures = append(slices.DeleteFunc(t.View.Failures, func(at time.Time) bool { return !at.After(from) }), t.now)
	t.View.CountedFailures = newest(append(t.View.CountedFailures, c), max(failuresKept, budget.SameStep))
}

// withinBudget reports whether the job goes on after a failure in a generation, and ends it if not.
func (t *transition) withinBudget(g ident.Generation, last string) bool {
	if len(t.View.Failures) <= *t.View.Spec.Failures.Max {
		return !t.sameStepExceeded()
	}
	t.budgetExhausted(g, last)
	return false
}

// sameStepExceeded ends a job whose newest failures were all at one step.
func (t *transition) sameStepExceeded() bool {
	limit := t.View.Spec.Failures.SameStep
	n, step := events.SameStep(t.View.CountedFailures)
	if limit < 1 || n < limit {
		return false
	}
	row := newest(slices.DeleteFunc(slices.Clone(t.View.CountedFailures), func(c events.CountedFailure) bool { return !c.Poison }), n)
	var places []string
	for _, c := range row {
		if c.Place != nil {
			places = append(places, c.Place.String())
		}
	}
	slices.Sort(places)
	where := ""
	if places = slices.Compact(places); len(places) > 0 {
		where = ", at " + strings.Join(places, " and ")
	}
	what := "after step " + fmt.Sprint(step)
	if step == 0 {
		what = "before the first step that it could return to"
	}
	t.endJob(events.JobStateFailed, errcode.Invalid, fmt.Sprintf(
		"the data or the code kills it: %s in a row %s%s (failures.sameStep is %d); first: %s",
		english.Plural(n, "failure"), what, where, limit, describeFailure(row[0])))
	return true
}

func describeFailure(c events.CountedFailure) string {
	switch {
	case c.Place == nil:
		return c.Detail
	case c.Rank >= 0:
		return fmt.Sprintf("worker %s (rank %d): %s", c.Place, c.Rank, c.Detail)
	}
	return fmt.Sprintf("worker %s: %s", c.Place, c.Detail)
}

// correctFailureSteps corrects the failures of the generation before a seal: that generation could
// return to the newest commit of its remaining members, even if their agents did not know it.
func (t *transition) correctFailureSteps(b events.RoundSealed) {
	if !t.inProcess() {
		return
	}
	t.Commit = tables.Commit{}
	for _, m := range b.Members {
		if m.Commit.Newer(t.Commit) {
			t.Commit = m.Commit
		}
	}
	for i := range t.View.CountedFailures {
		if c := &t.View.CountedFailures[i]; c.Generation != 0 && c.Generation == b.Generation-1 {
			c.Step = max(c.Step, t.Commit.Step)
		}
	}
}

// noProgress counts a generation that was lost to a fault without a failed worker: broken
// connections, peers that accuse each other. One or two cost nothing, because links fail
// temporarily; but a job that loses every generation before its next commit would do so for ever.
// With other programs each process that dies is counted.
func (t *transition) noProgress(b events.RoundSealed, over ident.Generation) {
	t.NoProgress = b.NoProgress
	if over == 0 || b.NoProgress <= spec.FreeRetries || b.Cause.Kind.Planned() || b.Cause.Kind == events.CauseLink || !t.inProcess() || !t.claimFailure(over) {
		return
	}
	detail := fmt.Sprintf("%s in a row were lost before they could commit a step after %d", english.Plural(b.NoProgress, "generation"), t.Commit.Step)
	if why := b.Cause.Detail; why != "" {
		detail += "; the last one: " + why
	}
	t.recordFailure(events.CountedFailure{At: t.now, Generation: over, Rank: -1, Step: t.Commit.Step, Kind: events.FailureNoProgress, Detail: detail}, detail)
}

// addTimeWithoutStep adds the time that the previous generation spent without a good step.
// health.hang includes it, so that generations which are lost before they make a step do not
// restart the timeout.
func (t *transition) addTimeWithoutStep() {
	g := t.View.Generation
	if g == 0 || t.Broken >= g || t.LastGood >= g {
		return
	}
	if v := t.generation(g); v != nil {
		t.View.TimeWithoutStep += spec.Duration(max(0, t.now.Sub(v.Sealed)))
	}
}
