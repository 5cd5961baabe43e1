package job

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// causeTimeout is how long the end of a job waits for the exit of the peer that was lost.
const causeTimeout = 2 * time.Second

// Exhaustion is a failure budget that was used up by a worker which reports a lost peer: the job
// waits for that peer's exit.
type Exhaustion struct {
	By         time.Time        `json:"by"`
	Generation ident.Generation `json:"generation"`
	Last       string           `json:"last,omitempty"` // description of the failure that exhausted it
}

// recordFirstError keeps the first failure: with many workers most others are its consequences.
// Facts of several nodes arrive in any order, and a worker that lost a peer may end before that
// peer. Within a generation a failure without a lost peer takes precedence, then the earlier one.
func (t *transition) recordFirstError(w *tables.WorkerView) {
	at := t.in.Stored // the times at which this replica applies two events say less about their order
	if at.IsZero() {
		at = t.now
	}
	if b, ok := t.in.Body.(events.WorkerExited); ok && b.Incarnation == w.Incarnation {
		age := max(0, b.AgeMS)
		if b.Exception != nil {
			age += max(0, b.Exception.BeforeMS)
		}
		// Bounded, because the age in a late report is unreliable.
		at = at.Add(-min(time.Duration(age*float64(time.Millisecond)), causeTimeout))
	}
	if f := t.View.FirstError; f != nil && !t.failedBefore(w, at, f) {
		return
	}
	f := *w
	f.FailedAt = at
	t.View.FirstError = &f
	if lostPeer(w) { // the peer may have been stopped, and its exit received, before
		for w := range t.workers() {
			t.preferOwnException(w)
		}
	}
}

// failedBefore reports whether a worker that failed at a time takes precedence over f.
func (t *transition) failedBefore(w *tables.WorkerView, at time.Time, f *tables.WorkerView) bool {
	if w.Incarnation == f.Incarnation || f.FailedAt.IsZero() || w.Generation == 0 || w.Generation != f.Generation {
		return false
	}
	if a, b := lostPeer(w), lostPeer(f); a != b {
		return b
	}
	return at.Before(f.FailedAt)
}

// lostPeer reports whether a worker says that it failed because of another one.
func lostPeer(w *tables.WorkerView) bool { return w.Exception != nil && w.Exception.Peer }

// preferOwnException makes a worker that was stopped the first to fail if it had an exception of
// its own before, and the first failure so far is a lost peer or later than that exception.
func (t *transition) preferOwnException(w *tables.WorkerView) {
	f := t.View.FirstError
	if w.State != tables.WorkerStateStopped || w.Exception == nil || lostPeer(w) || f == nil || w.Generation != f.Generation {
		return
	}
	t.recordFirstError(w)
	t.preferCause(w, events.CauseAt(events.CauseWorkerFailed, w.Place, w.Rank, w.Detail))
}

// causeUnknown reports whether the only known failures of a generation are lost peers, and other
// members have not ended yet.
func (t *transition) causeUnknown(g ident.Generation) bool {
	f := t.View.FirstError
	if f == nil || g == 0 || f.Generation != g || !lostPeer(f) {
		return false
	}
	return slices.ContainsFunc(t.View.Workers, func(w tables.WorkerView) bool { return w.Generation == g && !w.State.Ended() })
}

// budgetExhausted ends a job whose failure budget is used up as soon as the cause is known.
func (t *transition) budgetExhausted(g ident.Generation, last string) {
	if t.causeUnknown(g) {
		t.Exhaustion = &Exhaustion{By: t.now.Add(causeTimeout), Generation: g, Last: last}
		return
	}
	t.endExhausted(last)
}

// noWindow is a failures.per that no job outlasts.
const noWindow = 365 * 24 * time.Hour

func (t *transition) endExhausted(last string) {
	budget := t.View.Spec.Failures
	within := ""
	if budget.Per.D() < noWindow {
		within = " within " + budget.Per.D().String()
	}
	reason := fmt.Sprintf("the failure budget is used up: %d%s, %d allowed", len(t.View.Failures), within, *budget.Max)
	if f := t.View.FirstError; f != nil {
		reason += "; first: " + describeExit(f)
		if last == describeExit(f) {
			last = ""
		}
	}
	if last != "" {
		reason += "; last: " + last
	}
	t.endJob(events.JobStateFailed, errcode.Exhausted, reason)
}

// resolveExhaustion ends a job once the cause is known or the wait for it is over.
func (t *transition) resolveExhaustion() bool {
	x := t.Exhaustion
	if x == nil || (t.causeUnknown(x.Generation) && t.now.Before(x.By)) {
		return false
	}
	if f := t.View.FirstError; f.Generation == x.Generation && !lostPeer(f) {
		x.Last = "" // only a consequence
	}
	t.endExhausted(x.Last)
	return true
}

// PermanentFailure is a failure that a retry does not fix: the same one before the job's first step
// in each of its generations.
type PermanentFailure struct {
	Cause string           `json:"cause"`
	Nodes []ident.NodeID   `json:"nodes"` // where it has happened
	Last  ident.Generation `json:"last,omitempty"`
	Tries int              `json:"tries"` // generations that it has ended
}

// startupWindow is how long after the seal of its first generation a job counts as starting up. Not
// every program reports its steps.
const startupWindow = 5 * time.Minute

// permanentTries is how many generations one cause may end before the job fails without its having
// been seen on every node.
const permanentTries = spec.FreeRetries + 1

// permanentErrors are the Python exceptions that are caused by the program itself.
var permanentErrors = []string{
	"SyntaxError", "IndentationError", "TabError", "NameError", "UnboundLocalError", "AttributeError", "ImportError", "ModuleNotFoundError",
}

// permanentFailure ends a job whose program fails before its first step for a reason in the
// program: an undefined name, a missing module, an unknown argument. A node may lack what others
// have, so each participating node must have shown the failure, or several generations must have
// ended by it.
func (t *transition) permanentFailure(w *tables.WorkerView, b events.WorkerExited) bool {
	cause := permanentError(b)
	if cause == "" || t.View.Step > 0 || b.Step > 0 || (t.inProcess() && t.LastGood > 0) || !t.startingUp() {
		t.Permanent = PermanentFailure{}
		return false
	}
	f := &t.Permanent
	if f.Cause != cause {
		*f = PermanentFailure{Cause: cause}
	}
	if !slices.Contains(f.Nodes, b.Place.Node) {
		f.Nodes = append(slices.Clone(f.Nodes), b.Place.Node)
	}
	if f.Tries == 0 || b.Generation > f.Last {
		f.Last, f.Tries = b.Generation, f.Tries+1
	}
	spared := slices.ContainsFunc(t.nodesOf(b.Generation), func(n ident.NodeID) bool { return !slices.Contains(f.Nodes, n) })
	if spared && f.Tries < permanentTries {
		return false
	}
	t.recordFirstError(w)
	reason := "it fails as it begins, and would again: "
	if !strings.Contains(w.Detail, cause) {
		reason += cause + "; "
	}
	t.endJob(events.JobStateFailed, errcode.Invalid, reason+describeExit(w))
	return true
}

// EarlyEnds counts the starts of a job of which no worker has made a step or lived for some
// seconds: a retry gives the same result.
type EarlyEnds struct {
	Passed     bool             `json:"passed,omitempty"` // one has
	Tries      int              `json:"tries,omitempty"`
	Generation ident.Generation `json:"generation,omitempty"` // of the newest try
	Attempt    int              `json:"attempt,omitempty"`    // likewise
}

// startupLife is how long a worker lives if its program begins at all. The import of a large
// library takes some seconds.
const startupLife = 10 * time.Second

// endsEarly ends a job whose program has failed by itself as it began, several times in a row.
func (t *transition) endsEarly(w *tables.WorkerView, b events.WorkerExited) bool {
	e := &t.Early
	own := b.Signal == "" || slices.Contains(tables.OwnSignals, b.Signal)
	if e.Passed || (t.inProcess() && t.LastGood > 0) || !own || b.LivedMS == 0 || b.Orphaned || b.NodeFault || b.Departing || lostPeer(w) {
		return false
	}
	if e.Tries > 0 && b.Generation <= e.Generation && w.Attempt <= e.Attempt {
		return false // another worker of the same try
	}
	e.Tries, e.Generation, e.Attempt = e.Tries+1, max(e.Generation, b.Generation), max(e.Attempt, w.Attempt)
	if e.Tries < permanentTries {
		return false
	}
	t.publishFailure(w, b.Generation, t.exitFailure(b))
	t.endJob(events.JobStateFailed, errcode.Invalid, fmt.Sprintf("it fails as it begins, %d times in a row: no worker has reported a step or lived for %s; %s",
		e.Tries, startupLife, describeExit(w)))
	return true
}

// startingUp reports whether the job has no generation yet, or only a first one of late.
func (t *transition) startingUp() bool {
	g := t.View.Generations
	return len(g) == 0 || (g[0].Generation == 1 && t.now.Before(g[0].Sealed.Add(startupWindow)))
}

// nodesOf returns the nodes of a generation or, before one is sealed, of the job's places.
func (t *transition) nodesOf(n ident.Generation) (nodes []ident.NodeID) {
	if g := t.generation(n); g != nil && len(g.Members) > 0 {
		for _, m := range g.Members {
			nodes = append(nodes, m.Place.Node)
		}
		return nodes
	}
	for _, p := range t.Placed.Places {
		nodes = append(nodes, p.Node)
	}
	return nodes
}

// permanentError returns the line in which a program reports an error of its own, or "".
func permanentError(b events.WorkerExited) string {
	if b.ExitCode <= 0 || b.Orphaned {
		return ""
	}
	if e := b.Exception; e != nil {
		if isPermanent(e.Type + ": " + e.Message) {
			return e.String()
		}
		return ""
	}
	last, traced, usage := "", false, false
	for _, line := range b.Lines {
		text := strings.TrimSpace(line)
		traced = traced || strings.HasPrefix(text, `File "`)
		usage = usage || strings.HasPrefix(text, "usage:")
		if text != "" {
			last = text
		}
	}
	switch {
	case b.ExitCode == 2 && ((usage && strings.Contains(last, "error:")) || strings.Contains(last, "can't open file")):
		return last // the last line, as Python and argparse print it
	case isPermanent(last):
		return last
	case !traced:
		return ""
	}
	for _, line := range slices.Backward(b.Lines) { // there is output after the traceback
		if text := strings.TrimSpace(line); isPermanent(text) {
			return text
		} else if isException(text) {
			return ""
		}
	}
	return ""
}

// isException reports whether a line ends a traceback: an exception name, perhaps with a module,
// and its message.
func isException(line string) bool {
	name, _, _ := strings.Cut(line, ":")
	name = name[strings.LastIndexByte(name, '.')+1:]
	return name != "" && !strings.ContainsAny(name, " \t\"'(") && (strings.HasSuffix(name, "Error") || strings.HasSuffix(name, "Exception") || strings.HasSuffix(name, "Interrupt"))
}

func isPermanent(line string) bool {
	name, message, _ := strings.Cut(line, ":")
	// A None where an object was expected may come from outside the program.
	return slices.Contains(permanentErrors, name) && !strings.Contains(message, "'NoneType'")
}
