package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
)

// ended says how the job ended and when.
func ended(v events.JobView, now time.Time) string {
	text := fmt.Sprintf("%s %s ago", v.State, screen.Span(now.Sub(v.Ended)))
	if v.Reason != "" {
		text += ": " + v.Reason
	}
	if v.State == events.JobHasFailed && v.FirstError != nil {
		text += fmt.Sprintf("; first failure on %s: %s", v.FirstError.Place, v.FirstError.Detail)
	}
	return text
}

func over(s events.WorkerState) bool {
	switch s {
	case events.WorkerSucceeded, events.WorkerHasFailed, events.WorkerIsLost, events.WorkerWasStopped:
		return true
	}
	return false
}

func alive(v events.JobView) int {
	n := 0
	for _, w := range v.Workers {
		if !over(w.State) {
			n++
		}
	}
	return n
}

func finishing(v events.JobView) (done, left int) {
	for _, w := range v.Workers {
		switch {
		case w.State == events.WorkerIsDone, w.State == events.WorkerSucceeded:
			done++
		case !over(w.State):
			left++
		}
	}
	return done, left
}

// missing are the places that the next generation expects and that have not joined.
func (s Seen) missing() []events.Place {
	var out []events.Place
	for _, p := range s.Round.Expected {
		if !slices.Contains(s.Round.Joined, p) {
			out = append(out, p)
		}
	}
	return out
}

// warming are the places that the scheduler has given and that are not in the running generation.
func (s Seen) warming() []events.Place {
	in := map[events.Place]bool{}
	for _, m := range s.Round.Members {
		in[m.Place] = true
	}
	var out []events.Place
	for _, p := range s.Placement.Places {
		leftOut := slices.ContainsFunc(s.Round.CutLinks, func(l events.CutLink) bool { return l.Out == p.Node })
		if !in[p] && !leftOut && s.Round.Generation > 0 {
			out = append(out, p)
		}
	}
	return out
}

// links are nodes that cannot reach each other.
func (s Seen) links() []string {
	var out []string
	for _, l := range s.Round.CutLinks {
		text := fmt.Sprintf("%s and %s cannot reach each other, ", l.Nodes[0], l.Nodes[1])
		if l.Out == "" {
			text += "and too few workers would be left without either"
		} else {
			text += fmt.Sprintf("%s is left out for %s more", l.Out, screen.Span(max(0, l.Until.Sub(s.Now))))
		}
		out = append(out, text)
	}
	return out
}

// placesText names places with what is known of their workers: node-b/1 (starting, attempt 2).
func (s Seen) placesText(all []events.Place) string {
	const most = 3
	var words []string
	for i, p := range all {
		if i == most {
			words = append(words, fmt.Sprintf("%d more", len(all)-most))
			break
		}
		words = append(words, p.String()+s.workerText(p))
	}
	return strings.Join(words, ", ")
}

func (s Seen) workerText(p events.Place) string {
	i := slices.IndexFunc(s.Job.Workers, func(w events.WorkerView) bool { return w.Place == p })
	if i < 0 {
		return " (not started yet)"
	}
	w := s.Job.Workers[i]
	text := string(w.State)
	if w.Attempt > 1 {
		text += fmt.Sprintf(", attempt %d", w.Attempt)
	}
	return " (" + text + ")"
}

// doubts are the job's nodes that are not simply ready.
func (s Seen) doubts() []string {
	mine := map[events.NodeID]bool{}
	for _, p := range s.Placement.Places {
		mine[p.Node] = true
	}
	for _, m := range s.Round.Members {
		mine[m.Place.Node] = true
	}
	var out []string
	for _, n := range s.Nodes {
		if !mine[n.Node] || n.Usable() {
			continue
		}
		text := fmt.Sprintf("%s is %s", n.Node, n.State)
		if n.State == events.NodeReady && n.Draining {
			text = fmt.Sprintf("%s is draining", n.Node)
		}
		text += " for " + screen.Span(s.Now.Sub(n.Since))
		if n.Reason != "" {
			text += " (" + n.Reason + ")"
		}
		out = append(out, text)
	}
	return out
}
