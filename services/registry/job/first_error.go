package job

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// causeTimeout is how long the end of a job waits for what made a worker lose its peers: that
// peer's own exit is under way.
const causeTimeout = 2 * time.Second

// Exhaustion is a failure budget that was used up by a worker which says that it lost a peer: how
// that peer ended is waited for.
type Exhaustion struct {
	By         time.Time         `json:"by"`
	Generation events.Generation `json:"generation"`
	Last       string            `json:"last,omitempty"` // failure that was one too many, for people
}

// recordFirstError keeps the first failure: with many workers most others are its consequence.
// Facts of several nodes come in any order, and who loses a peer may end before it: within a
// generation the one that does not speak of a peer counts, then the one that was earlier.
func (t *transition) recordFirstError(w *events.WorkerView) {
	at := t.now
	if b, ok := t.in.Body.(events.WorkerExited); ok && b.Incarnation == w.Incarnation {
		age := max(0, b.AgeMS)
		if b.Exception != nil {
			age += max(0, b.Exception.BeforeMS)
		}
		at = at.Add(-min(time.Duration(age*float64(time.Millisecond)), causeTimeout)) // a late report is not believed to the hour
	}
	if f := t.View.FirstError; f != nil && !t.failedBefore(w, at, f) {
		return
	}
	f := *w
	f.FailedAt = at
	t.View.FirstError = &f
}

// failedBefore tells whether a worker that failed at a moment is rather the first one than f.
func (t *transition) failedBefore(w *events.WorkerView, at time.Time, f *events.WorkerView) bool {
	if w.Incarnation == f.Incarnation || f.FailedAt.IsZero() || w.Generation == 0 || w.Generation != f.Generation {
		return false
	}
	if a, b := lostPeer(w), lostPeer(f); a != b {
		return b
	}
	return at.Before(f.FailedAt)
}

// lostPeer tells whether a worker failed because of another one, as it says.
func lostPeer(w *events.WorkerView) bool { return w.Exception != nil && w.Exception.Peer }

// preferOwnException takes a worker that was stopped for the first to fail if it had an exception
// of its own before, and what is known to have failed says that it lost a peer.
func (t *transition) preferOwnException(w *events.WorkerView, b events.WorkerExited) {
	f := t.View.FirstError
	if w.State != events.WorkerStateStopped || w.Exception == nil || lostPeer(w) || f == nil || w.Generation != f.Generation || !lostPeer(f) {
		return
	}
	t.recordFirstError(w)
	t.preferCause(w, events.Cause{Kind: events.CauseWorkerFailed, Place: &b.Place, Node: b.Place.Node, Rank: w.Rank, Detail: b.Detail})
}

// causeUnknown tells whether all that is known of the end of a generation is that workers lost a
// peer, and others of its members have not ended yet.
func (t *transition) causeUnknown(g events.Generation) bool {
	f := t.View.FirstError
	if f == nil || g == 0 || f.Generation != g || !lostPeer(f) {
		return false
	}
	for i := range t.View.Workers {
		if w := &t.View.Workers[i]; w.Generation == g && !w.State.Ended() {
			return true
		}
	}
	return false
}

// budgetExhausted ends a job whose failure budget is used up, once it is known what failed.
func (t *transition) budgetExhausted(g events.Generation, last string) {
	if t.causeUnknown(g) {
		t.Exhaustion = &Exhaustion{By: t.now.Add(causeTimeout), Generation: g, Last: last}
		return
	}
	t.endExhausted(last)
}

// endExhausted ends the job now.
func (t *transition) endExhausted(last string) {
	budget := t.View.Spec.Failures
	reason := fmt.Sprintf("the failure budget is used up: %d within %s, %d allowed", len(t.View.Failures), budget.Per.D(), *budget.Max)
	if f := t.View.FirstError; f != nil {
		reason += "; first: " + describeExit(f)
		if last == describeExit(f) {
			last = ""
		}
	}
	if last != "" {
		reason += "; last: " + last
	}
	t.endJob(events.JobStateFailed, events.Exhausted, reason)
}

// resolveExhaustion ends a job whose end waits for the cause, when it has come or does not come.
func (t *transition) resolveExhaustion() bool {
	x := t.Exhaustion
	if x == nil || (t.causeUnknown(x.Generation) && t.now.Before(x.By)) {
		return false
	}
	if f := t.View.FirstError; f.Generation == x.Generation && !lostPeer(f) {
		x.Last = "" // only its consequence
	}
	t.endExhausted(x.Last)
	return true
}

// PermanentFailure is a failure that trying again does not mend: the same one before the job's
// first step, in each of its generations.
type PermanentFailure struct {
	Cause string            `json:"cause"`
	Nodes []events.NodeID   `json:"nodes"` // where it has happened
	Last  events.Generation `json:"last,omitempty"`
	Tries int               `json:"tries"` // generations that it has ended
}

// startupWindow is how long after the seal of its first generation a job is at its beginning. Not
// every program tells its steps.
const startupWindow = 5 * time.Minute

// permanentTries is how many generations one cause may end before no node that has not shown it is
// waited for.
const permanentTries = spec.FreeRetries + 1

// permanentErrors are the errors of a program that are in the program, by the names that Python
// gives them.
var permanentErrors = []string{
	"SyntaxError", "IndentationError", "TabError", "NameError", "UnboundLocalError", "AttributeError", "ImportError", "ModuleNotFoundError",
}

// permanentFailure ends a job whose program fails before its first step in a way that is in the
// program: a name that does not exist, a module that is missing, an argument that nobody knows. A
// node may lack what others have, so each of those that take part must have shown it, or several
// generations must have ended so.
func (t *transition) permanentFailure(w *events.WorkerView, b events.WorkerExited) bool {
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
	spared := slices.ContainsFunc(t.nodesOf(b.Generation), func(n events.NodeID) bool { return !slices.Contains(f.Nodes, n) })
	if spared && f.Tries < permanentTries {
		return false
	}
	t.recordFirstError(w)
	reason := "it fails as it begins, and would again: "
	if !strings.Contains(w.Detail, cause) {
		reason += cause + "; "
	}
	t.endJob(events.JobStateFailed, events.Invalid, reason+describeExit(w))
	return true
}

// startingUp tells whether the job's first generation was sealed a short while ago, if at all.
func (t *transition) startingUp() bool {
	g := t.View.Generations
	return len(g) == 0 || (g[0].Generation == 1 && t.now.Before(g[0].Sealed.Add(startupWindow)))
}

// nodesOf are the nodes of a generation or, before one is sealed, of the job's places.
func (t *transition) nodesOf(n events.Generation) (nodes []events.NodeID) {
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

// permanentError returns the line in which a program says what is wrong with itself; empty = it
// does not say so.
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
		return last // as Python and argparse have it
	case isPermanent(last):
		return last
	case !traced:
		return ""
	}
	for _, line := range slices.Backward(b.Lines) { // something was said behind the traceback
		if text := strings.TrimSpace(line); isException(text) {
			if isPermanent(text) {
				return text
			}
			return ""
		}
	}
	return ""
}

// isException tells whether a line ends a traceback: a name, perhaps of a module, and what it says.
func isException(line string) bool {
	name, _, _ := strings.Cut(line, ":")
	name = name[strings.LastIndexByte(name, '.')+1:]
	return name != "" && !strings.ContainsAny(name, " \t\"'(") && (strings.HasSuffix(name, "Error") || strings.HasSuffix(name, "Exception") || strings.HasSuffix(name, "Interrupt"))
}

func isPermanent(line string) bool {
	name, said, _ := strings.Cut(line, ":")
	// What is None where an object was expected came from outside, perhaps.
	return slices.Contains(permanentErrors, name) && !strings.Contains(said, "'NoneType'")
}
