package job

import (
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// Futile is a failure that trying again does not mend: the same one before the job's first step, in each of its generations.
type Futile struct {
	Cause string            `json:"cause"`
	Nodes []events.NodeID   `json:"nodes"` // where it has happened
	Last  events.Generation `json:"last,omitempty"`
	Tries int               `json:"tries"` // generations that it has ended
}

// futileWithin is how long after the seal of its first generation a job is at its beginning. Not every program tells its steps.
const futileWithin = 5 * time.Minute

// futileTries is how many generations one cause may end before no node that has not shown it is waited for.
const futileTries = spec.FreeRetries + 1

// lasting are the errors of a program that are in the program, by the names that Python gives them.
var lasting = []string{
	"SyntaxError", "IndentationError", "TabError", "NameError", "UnboundLocalError", "AttributeError", "ImportError", "ModuleNotFoundError",
}

// futile ends a job whose program fails before its first step in a way that is in the program: a name that does not exist, a module that
// is missing, an argument that nobody knows. A node may lack what others have, so each of those that take part must have shown it, or
// several generations must have ended so.
func (t *turn) futile(w *events.WorkerView, b events.WorkerExited) bool {
	cause := lastingError(b)
	if cause == "" || t.View.Step > 0 || b.Step > 0 || (t.inProcess() && t.LastGood > 0) || !t.begins() {
		t.Futile = Futile{}
		return false
	}
	f := &t.Futile
	if f.Cause != cause {
		*f = Futile{Cause: cause}
	}
	if !slices.Contains(f.Nodes, b.Place.Node) {
		f.Nodes = append(slices.Clone(f.Nodes), b.Place.Node)
	}
	if f.Tries == 0 || b.Generation > f.Last {
		f.Last, f.Tries = b.Generation, f.Tries+1
	}
	spared := slices.ContainsFunc(t.nodesOf(b.Generation), func(n events.NodeID) bool { return !slices.Contains(f.Nodes, n) })
	if spared && f.Tries < futileTries {
		return false
	}
	t.first(w)
	reason := "it fails as it begins, and would again: "
	if !strings.Contains(w.Detail, cause) {
		reason += cause + "; "
	}
	t.end(events.JobStateFailed, events.Invalid, reason+died(w))
	return true
}

// begins tells whether the job's first generation was sealed a short while ago, if at all.
func (t *turn) begins() bool {
	g := t.View.Generations
	return len(g) == 0 || (g[0].Generation == 1 && t.now.Before(g[0].Sealed.Add(futileWithin)))
}

// nodesOf are the nodes of a generation or, before one is sealed, of the job's places.
func (t *turn) nodesOf(n events.Generation) (nodes []events.NodeID) {
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

// lastingError returns the line in which a program says what is wrong with itself; empty = it does not say so.
func lastingError(b events.WorkerExited) string {
	if b.ExitCode <= 0 || b.Orphaned {
		return ""
	}
	if e := b.Exception; e != nil {
		if isLasting(e.Type + ": " + e.Message) {
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
	case isLasting(last):
		return last
	case !traced:
		return ""
	}
	for _, line := range slices.Backward(b.Lines) { // something was said behind the traceback
		if text := strings.TrimSpace(line); isException(text) {
			if isLasting(text) {
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

func isLasting(line string) bool {
	name, said, _ := strings.Cut(line, ":")
	// What is None where an object was expected came from outside, perhaps.
	return slices.Contains(lasting, name) && !strings.Contains(said, "'NoneType'")
}
