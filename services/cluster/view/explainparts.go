package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/english"
)

func ended(v events.JobView) string {
	text := fmt.Sprintf("%s %s ago", v.State, since(v.Ended))
	if v.Reason != "" {
		text += ": " + v.Reason
	}
	if v.State == events.JobStateFailed && v.FirstError != nil {
		text += fmt.Sprintf("; first failure on %s", v.FirstError.Place)
		if !strings.Contains(v.Reason, v.FirstError.Detail) {
			text += ": " + v.FirstError.Detail
		}
	}
	return text
}

// observed formats the age of the newest step that was observed, once it is a second: until then
// steps are as good as now. "" = it is younger, or no step is reported.
func (s Seen) observed(format string) string {
	v := s.Job
	age := s.Now.Sub(v.StepAt)
	if v.Step == 0 || v.StepAt.IsZero() || age < time.Second {
		return ""
	}
	return fmt.Sprintf(format, since(v.StepAt))
}

// broughtAbout returns the incident after which the present generation began; nil = none did.
func (s Seen) broughtAbout() *events.IncidentClosed {
	n := len(s.Job.Incidents)
	if n == 0 || s.Job.Incidents[n-1].To != s.Job.Generation || s.Job.State.Terminal() {
		return nil
	}
	return &s.Job.Incidents[n-1]
}

func alive(v events.JobView) int {
	n := 0
	for _, w := range v.Workers {
		if !w.State.Ended() {
			n++
		}
	}
	return n
}

func finishing(v events.JobView) (done, left int) {
	for _, w := range v.Workers {
		switch {
		case w.State == tables.WorkerStateDone, w.State == tables.WorkerStateSucceeded:
			done++
		case !w.State.Ended():
			left++
		}
	}
	return done, left
}

// missing lists the slots that the next generation expects and that have not joined.
func (s Seen) missing() []ident.Place {
	var out []ident.Place
	for _, p := range s.Round.Expected {
		if !slices.Contains(s.Round.Joined, p) {
			out = append(out, p)
		}
	}
	return out
}

// newcomers lists the slots that are assigned and not in the running generation. They are spares
// if the members that stay and they together are no larger multiple of elastic.multipleOf than the
// members are: the next generation has no use for them. enter is how many of the others it takes.
func (s Seen) newcomers() (warming, spares []ident.Place, enter int) {
	in := map[ident.Place]bool{}
	for _, m := range s.Round.Members {
		in[m.Place] = true
	}
	var out []ident.Place
	stay := 0
	for _, p := range s.Placement.Places {
		leftOut := slices.ContainsFunc(s.Round.LinkPartitions, func(l events.LinkPartition) bool { return l.Excluded == p.Node })
		switch {
		case in[p]:
			stay++
		case !leftOut && s.Round.Generation > 0:
			out = append(out, p)
		}
	}
	if enter = s.Job.Spec.Elastic.Whole(stay+len(out)) - stay; enter <= 0 {
		return nil, out, 0
	}
	return out, nil, enter
}

func (s Seen) newcomersText(e Explanation) []string {
	_, _, enter := s.newcomers()
	switch of := s.Job.Spec.Elastic.MultipleOf; {
	case enter < len(e.Warming):
		return []string{fmt.Sprintf("%d to come in at a commit, of %s", enter, s.placesText(e.Warming))}
	case len(e.Warming) > 0:
		return []string{"to come in at a commit: " + s.placesText(e.Warming)}
	case len(e.Spares) == 1:
		return []string{fmt.Sprintf("a spare worker beyond a multiple of %d: %s", of, s.placesText(e.Spares))}
	case len(e.Spares) > 1:
		return []string{fmt.Sprintf("spare workers beyond a multiple of %d: %s", of, s.placesText(e.Spares))}
	}
	return nil
}

// lastCause describes why a job has lost all its slots.
func (s Seen) lastCause() events.Cause {
	if s.Round.Proposed > 0 {
		return s.Round.Cause
	}
	if s.Job.OpenIncident != nil {
		return s.Job.OpenIncident.Cause
	}
	return events.Cause{Kind: events.CauseShrink, Rank: -1}
}

// silent reports whether no replica of a service answers, while replicas of others do.
func (s Seen) silent(service string) bool {
	return slices.Contains(s.Silent, service) && len(s.Silent) < len(events.Services())
}

// absent describes what does not happen because a service is down, and which views may be out of
// date.
func (s Seen) absent(e Explanation) []string {
	if len(s.Silent) == len(events.Services()) {
		text := "no service answers: all of this is as they left it"
		if s.ServerEnded {
			text += ", and regroup up goes on with it"
		}
		return []string{text}
	}
	var out []string
	for _, service := range s.Silent {
		reported := service == events.ServiceScheduler && e.Places == 0 && s.Round.Generation == 0 ||
			service == events.ServiceRendezvous && e.Training == 0 && e.Places > 0 && s.Round.Proposed == 0
		if !reported {
			out = append(out, fmt.Sprintf("no %s answers: %s", service, cmp.Or(missed[service], "its documents are as it left them")))
		}
	}
	return out
}

// missed describes what does not work while a service is down.
var missed = map[string]string{
	events.ServiceDiscovery:  "what is known of nodes is as it left it",
	events.ServiceScheduler:  "it gets no other slots",
	events.ServiceRendezvous: "it cannot regroup",
	events.ServiceRegistry:   "its state, steps and failures are as it left them",
}

func (s Seen) links() []string {
	var out []string
	for _, l := range s.Round.LinkPartitions {
		text := fmt.Sprintf("%s and %s cannot reach each other, ", l.Nodes[0], l.Nodes[1])
		if l.Excluded == "" {
			text += "and too few workers would be left without either"
		} else {
			text += fmt.Sprintf("%s is left out for %s more", l.Excluded, until(l.Until))
		}
		out = append(out, text)
	}
	return out
}

// placesText names slots with the state of their workers: node-b/1 (starting, attempt 2).
func (s Seen) placesText(all []ident.Place) string {
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

func (s Seen) workerText(p ident.Place) string {
	i := slices.IndexFunc(s.Job.Workers, func(w tables.WorkerView) bool { return w.Place == p })
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

// nodesText names a few nodes, and counts many.
func nodesText(all []ident.NodeID) string {
	const few = 3
	if len(all) > few {
		return english.Plural(len(all), "node")
	}
	names := make([]string, len(all))
	for i, n := range all {
		names[i] = string(n)
	}
	return strings.Join(names, ", ")
}

// doubts lists the job's nodes that are not ready.
func (s Seen) doubts() []string {
	mine := map[ident.NodeID]bool{}
	for _, p := range s.Placement.Places {
		mine[p.Node] = true
	}
	for _, m := range s.Round.Members {
		mine[m.Place.Node] = true
	}
	var out []string
	for _, n := range s.Nodes {
		if !mine[n.Node] || n.Schedulable() {
			continue
		}
		if strings.Contains(" "+s.Placement.Waiting, " "+string(n.Node)+" ") {
			continue // part of the scheduler's reason
		}
		out = append(out, s.doubt(n))
	}
	return out
}

func (s Seen) doubt(n events.NodeView) string {
	lasts := " for " + since(n.Since)
	reason := ""
	if n.Reason != "" && n.Reason != "draining" {
		reason = " (" + n.Reason + ")"
	}
	switch {
	case n.State != events.NodeStateReady:
		return fmt.Sprintf("%s is %s%s%s", n.Node, n.State, lasts, reason)
	case n.Draining:
		return fmt.Sprintf("%s is draining%s%s", n.Node, lasts, reason)
	case n.Excluded != "":
		return fmt.Sprintf("%s may not be used: %s", n.Node, n.Excluded)
	case n.Quarantine != nil:
		return fmt.Sprintf("%s is quarantined for %s more: %s", n.Node, until(n.Quarantine.Until), n.Quarantine.Reason)
	}
	return fmt.Sprintf("%s is %s%s%s", n.Node, n.State, lasts, reason)
}

// awaitedNodes describes which nodes a job with self-registering nodes waits for; "" if it waits
// for none.
func (s Seen) awaitedNodes() string {
	g := s.Round.Rendezvous
	if !s.Job.Spec.SelfRegistered() || (g != nil && g.Complete) {
		return ""
	}
	r := s.Job.Spec.Rendezvous
	here := 0
	if g != nil {
		here = g.Nodes
	}
	text := fmt.Sprintf("waits for nodes to come: %d of %s here", here, english.Between(r.Nodes.Min, r.Nodes.Max, "node"))
	if g != nil && g.LastCall.After(s.Now) {
		text += "; the last call ends in " + until(g.LastCall)
	}
	return text
}

func (s Seen) standby() []string {
	g := s.Round.Rendezvous
	if g == nil {
		return nil
	}
	var out []string
	if g.Waiting > 0 {
		out = append(out, english.Plural(g.Waiting, "node")+" to come in at a commit")
	}
	if g.Spares > 0 {
		out = append(out, english.Plural(g.Spares, "spare node"))
	}
	if g.Closed {
		out = append(out, "no more nodes are taken in")
	}
	return out
}
