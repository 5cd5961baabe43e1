package job

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
)

// chargesKept is how many charges a job's view shows at least; failures.sameStep may need more.
const chargesKept = 64

// fault is what is charged.
type fault struct {
	kind   events.FailureKind
	step   uint64 // newest one that the generation could return to
	poison bool   // the data or the code may be why
}

// exitFault says what an exit that is a failure was.
func (t *turn) exitFault(b events.WorkerExited) fault {
	f := fault{kind: events.FailureCrash, poison: true}
	switch {
	case b.OOM:
		f.kind = events.FailureOOM
	case b.Signal != "":
		f.kind, f.poison = events.FailureSignal, slices.Contains(events.OwnSignals, b.Signal)
	}
	switch {
	case !t.inProcess():
		// Each program has checkpoints of its own: the last step that it told is the nearest to where it begins again.
		f.step = b.Step
		f.poison = f.poison && (b.Step > 0 || t.View.Step > 0) // else it tells no steps, and all of its failures would seem to be at one
	case b.Generation == 0:
		f.poison = f.poison && t.LastGood == 0 // a newcomer that dies aside does not end a job that makes steps
	default:
		if b.Generation >= t.View.Generation && b.Commit.Newer(t.Commit) {
			t.Commit = b.Commit
		}
		f.step = t.Commit.Step
	}
	return f
}

// silentFault is the end of workers that nothing tells of themselves.
func (t *turn) silentFault(kind events.FailureKind, member bool) fault {
	f := fault{kind: kind, poison: kind == events.FailureHang}
	switch {
	case !t.inProcess():
		f.step = t.View.Step
	case member:
		f.step = t.Commit.Step
	}
	return f
}

// charge takes one failure from the budget, in the name of a life that was in generation g (0 = in none), and tells whether
// the job goes on. What breaks in one generation is one failure, as torchrun counts restarts and Horovod resets: the others
// end because of the first. A life that was judged before is not charged again.
func (t *turn) charge(w *events.WorkerView, g events.Generation, f fault) bool {
	t.first(w)
	if t.Notes[w.Place.String()].Charged == w.Incarnation || !t.owes(g) {
		return true
	}
	place, rank := w.Place, w.Rank
	if v := t.generation(g); v != nil && rank < 0 {
		rank = seatOf(v.Members, w.WorkerRef, -1) // that it had
	}
	t.tell(events.JobFailureCounted{
		Job: t.View.Job, Place: place, Worker: w.Incarnation, Agent: w.Agent, Generation: g, Rank: rank, Step: f.step,
		Kind: f.kind, Detail: w.Detail,
	})
	return t.pay(events.CountedFailure{
		At: t.now, Place: &place, Worker: w.Incarnation, Generation: g, Rank: rank, Step: f.step, Kind: f.kind, Detail: w.Detail,
		Poison: f.poison,
	}, died(w))
}

// owes tells whether a fault of a generation is still to be charged, and notes that it is.
func (t *turn) owes(g events.Generation) bool {
	if g != 0 && g <= t.Charged {
		return false
	}
	t.Charged = max(t.Charged, g)
	return true
}

// pay writes a charge down and ends the job if it was one too many.
func (t *turn) pay(c events.CountedFailure, last string) bool {
	budget := t.View.Spec.Failures
	t.View.Failures = append(within(t.View.Failures, t.now.Add(-budget.Per.D())), t.now)
	t.View.CountedFailures = append(t.View.CountedFailures, c)
	if over := len(t.View.CountedFailures) - max(chargesKept, budget.SameStep); over > 0 {
		t.View.CountedFailures = slices.Clone(t.View.CountedFailures[over:])
	}
	if len(t.View.Failures) <= *budget.Max {
		return !t.poisoned()
	}
	t.exhausted(c.Generation, last)
	return false
}

// within drops what is not after a moment.
func within(at []time.Time, from time.Time) []time.Time {
	return slices.DeleteFunc(at, func(f time.Time) bool { return !f.After(from) })
}

// poisoned ends a job whose newest failures were all at one step: it would fail there for ever.
func (t *turn) poisoned() bool {
	limit := t.View.Spec.Failures.SameStep
	n, step := events.SameStep(t.View.CountedFailures)
	if limit < 1 || n < limit {
		return false
	}
	count := n
	var first events.CountedFailure
	var places []string
	for _, c := range slices.Backward(t.View.CountedFailures) {
		if !c.Poison {
			continue
		}
		if n--; n < 0 {
			break
		}
		first = c
		if c.Place != nil && !slices.Contains(places, c.Place.String()) {
			places = append(places, c.Place.String())
		}
	}
	where := ""
	if slices.Sort(places); len(places) > 0 {
		where = ", at " + strings.Join(places, " and ")
	}
	what := "after step " + fmt.Sprint(step)
	if step == 0 {
		what = "before the first step that it could return to"
	}
	t.end(events.JobStateFailed, events.Invalid, fmt.Sprintf(
		"the data or the code kills it: %d failures in a row %s%s (failures.sameStep is %d); first: %s",
		count, what, where, limit, charged(first)))
	return true
}

// charged says who failed, and how.
func charged(c events.CountedFailure) string {
	switch {
	case c.Place == nil:
		return c.Detail
	case c.Rank >= 0:
		return fmt.Sprintf("worker %s (rank %d): %s", c.Place, c.Rank, c.Detail)
	}
	return fmt.Sprintf("worker %s: %s", c.Place, c.Detail)
}

// settled corrects what was charged to the generation before a seal: the newest commit of the members that came back is
// the one that it could return to, also where its agent had not heard of it.
func (t *turn) settled(b events.RoundSealed) {
	if !t.inProcess() {
		return
	}
	t.Commit = events.Commit{}
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
