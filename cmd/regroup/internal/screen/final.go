package screen

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// Final writes the outcome or the state of a job: one line, the root cause of a failure, and hints.
func Final(w io.Writer, p Palette, v events.JobView, now time.Time) error {
	s := view.Summarize(v, now)
	took := view.Span(view.Lifetime(v, now))
	var b strings.Builder
	switch v.State {
	case events.JobStateSucceeded:
		b.WriteString(p.Good("✔ succeeded") + " in " + took)
	case events.JobStateFailed:
		b.WriteString(p.Bad("✘ failed") + " after " + took)
	case events.JobStateStopped:
		b.WriteString(p.Warn("■ stopped") + " after " + took)
	default:
		b.WriteString(p.State(string(v.State)) + " for " + took)
	}
	failures, lost := max(s.Failures(), len(v.CountedFailures)), s.StepsLost()
	if v.State == events.JobStateFailed && v.FirstError != nil {
		failures = max(failures, 1) // not every failure opens an incident: before the first step there is nothing to return to
		if len(s.Incidents) == 0 && v.Spec.Recovery != spec.RecoveryInProcess {
			lost = "unknown" // the program's steps are unknown
		}
	}
	parts := []string{english.Plural(len(s.Generations), "generation"), english.Plural(failures, "failure"), "steps lost " + lost}
	if s.Samples != nil {
		parts = append(parts, samplesText(*s.Samples))
	}
	if s.Dropped > 0 {
		parts = append(parts, english.Plural(int(s.Dropped), "line")+" of output dropped")
	}
	b.WriteString("   " + strings.Join(parts, " · ") + "\n")
	if v.Reason != "" && v.State != events.JobStateSucceeded {
		b.WriteString("  " + v.Reason + "\n")
	}
	if text := view.MetricsText(v, now); text != "" {
		b.WriteString("  " + text + "\n")
	}
	if h := v.StateHash; h != nil {
		fmt.Fprintf(&b, "  state after step %d: %s\n", h.Step, h.Hash)
	}
	if late := failedAfterwards(v); len(late) > 0 {
		fmt.Fprintf(&b, "  %s after the training was complete, first %s: %s\n", p.Warn(english.Plural(len(late), "worker")+" failed"), late[0].Place, late[0].Detail)
	}
	if v.State == events.JobStateFailed && v.FirstError != nil {
		b.WriteString(RootCause(p, v.Job, *v.FirstError))
	}
	fmt.Fprintf(&b, "  timeline  regroup timeline %s", v.Job)
	if len(s.Incidents) > 0 {
		fmt.Fprintf(&b, "        trace  regroup trace %s", v.Job)
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// failedAfterwards are the workers of a successful job whose processes failed after the training
// was complete: later work, such as saving the model, may be missing.
func failedAfterwards(v events.JobView) (late []tables.WorkerView) {
	if v.State != events.JobStateSucceeded {
		return nil
	}
	for _, w := range v.Workers {
		if w.State == tables.WorkerStateFailed && w.Generation == v.Generation {
			late = append(late, w)
		}
	}
	return late
}

func samplesText(s view.Samples) string {
	if s.Exact() {
		if s.Epochs == 0 {
			return "samples: none twice"
		}
		return "samples: each once"
	}
	if s.Missing == 0 && s.Repeated == 0 {
		return "samples: as many as there should be (too large an epoch to tell whether each once)"
	}
	return fmt.Sprintf("samples: at least %d missing, %d repeated", s.Missing, s.Repeated)
}

// failureLines describe how a worker failed: its exception, the frame in the user's code, the
// exception's cause, and how its process ended.
func failureLines(p Palette, e tables.WorkerView) []string {
	x := e.Exception
	if x == nil {
		return []string{e.Detail}
	}
	head := x.Type
	if x.Message != "" {
		head += ": " + x.Message
	}
	lines := []string{p.Head(view.OneLine(head))}
	if at := x.Where(); at != "" {
		lines = append(lines, "  at "+view.OneLine(at))
	}
	if x.Cause != "" {
		lines = append(lines, "  caused by "+view.OneLine(x.Cause))
	}
	if x.Peer {
		lines = append(lines, "  it lost a peer: how that one ended is not known")
	}
	if rest := strings.TrimPrefix(e.Detail, x.String()+", "); rest != e.Detail {
		lines = append(lines, rest)
	}
	return lines
}

// RootCause describes the first failure of a job in the order of events: the worker, the failure,
// and its last lines of output. Later failures are probably its consequences.
func RootCause(p Palette, job ident.JobID, e tables.WorkerView) string {
	who := e.Place.String()
	if e.Rank >= 0 {
		who = fmt.Sprintf("r%d on %s", e.Rank, e.Place)
	}
	head := fmt.Sprintf("first error: %s, %s, ", who, e.Generation)
	if e.PID > 0 { // 0 = it was not started
		head += fmt.Sprintf("pid %d, ", e.PID)
	}
	head += fmt.Sprintf("attempt %d", e.Attempt)
	side := p.Bad("│")
	var b strings.Builder
	b.WriteString(p.Bad("╭─ "+head) + "\n")
	for _, l := range failureLines(p, e) {
		b.WriteString(side + " " + l + "\n")
	}
	if len(e.Lines) > 0 {
		b.WriteString(side + "\n")
	}
	for _, l := range e.Lines {
		for part := range strings.SplitSeq(l, "\n") {
			b.WriteString(side + " " + p.Faint(part) + "\n")
		}
	}
	end := fmt.Sprintf("regroup logs %s --node %s", job, e.Place.Node)
	if e.Rank >= 0 {
		end = fmt.Sprintf("regroup logs %s --rank %d", job, e.Rank)
	}
	b.WriteString(p.Bad("╰─ ") + end + "\n")
	return b.String()
}
