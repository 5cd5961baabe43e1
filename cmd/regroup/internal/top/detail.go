package top

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// incidentsShown is how many of the newest incidents a job shows.
const incidentsShown = 5

// view is the job in at most room lines: what it is, its workers, its newest incidents, and in what
// is left the newest lines of its output.
func (d *detail) view(m model, room int) []string {
	p := m.palette()
	switch {
	case d.gone:
		return []string{fmt.Sprintf("there is no job %s any more", d.id)}
	case d.job == nil:
		return []string{fmt.Sprintf("asking for %s ...", d.id)}
	}
	v := d.job.JobView
	lines := []string{fmt.Sprintf("%s  %s  generation %d  %s  %s", p.Head(string(v.Job)), p.State(string(v.State)), v.Generation, view.MembersText(v), stepText(m, v))}
	for _, text := range []string{v.Reason, view.MetricsText(v, m.now())} {
		if text != "" {
			lines = append(lines, view.OneLine(text))
		}
	}
	lines = append(lines, "")
	lines = append(lines, d.workers(m)...)
	if v.OpenIncident != nil || len(v.Incidents) > 0 {
		lines = append(lines, "", p.Head("INCIDENTS"))
	}
	if o := v.OpenIncident; o != nil {
		lines = append(lines, fmt.Sprintf("#%d %s · %s", o.Incident, view.CauseText(o.Cause), p.Warn("open")))
	}
	for n, i := range slices.Backward(v.Incidents) {
		if len(v.Incidents)-n > incidentsShown {
			lines = append(lines, p.Faint(fmt.Sprintf("… %d older", n+1)))
			break
		}
		lines = append(lines, view.OneLine(view.IncidentText(i)))
	}
	lines = append(lines, "", p.Head("OUTPUT"))
	switch {
	case !d.known:
		lines = append(lines, "reading it ...")
	case len(d.lines) == 0:
		lines = append(lines, "none yet")
	}
	kept := max(5, room-len(lines)) // what does not fit is reached by scrolling
	for _, l := range d.lines[max(0, len(d.lines)-kept):] {
		text := p.Line(l)
		lines = append(lines, text.Prefix+text.Text)
	}
	from := min(d.scroll, max(0, len(lines)-room))
	return lines[from:]
}

// stepText is the newest step and its age; where no registry answers, what was heard before.
func stepText(m model, v events.JobView) string {
	switch {
	case v.Step == 0:
		return "no step known"
	case !m.live():
		return fmt.Sprintf("at least step %d", v.Step)
	case v.State != events.JobStateRunning || v.StepAt.IsZero():
		return fmt.Sprintf("step %d", v.Step)
	}
	return fmt.Sprintf("step %d, %s ago", v.Step, view.Span(m.now().Sub(v.StepAt)))
}

// workers is a table of them by rank; those without one come last.
func (d *detail) workers(m model) []string {
	p := m.palette()
	all := slices.Clone(d.job.Workers)
	if len(all) == 0 {
		return []string{"no workers yet"}
	}
	slices.SortStableFunc(all, func(a, b tables.WorkerView) int {
		return cmp.Or(cmp.Compare(uint(a.Rank), uint(b.Rank)), a.Place.Compare(b.Place))
	})
	rows := make([][]string, len(all))
	for i, w := range all {
		rank, gen := "-", "-"
		if w.Rank >= 0 {
			rank = p.Rank(w.Rank, fmt.Sprint(w.Rank))
		}
		if w.WorkerRef.Generation > 0 {
			gen = fmt.Sprint(uint64(w.WorkerRef.Generation))
		}
		rows[i] = []string{rank, string(w.Place.Node), fmt.Sprint(int(w.Place.Slot)), fmt.Sprint(w.PID), p.State(string(w.State)), gen, fmt.Sprint(w.Attempt)}
		if w.Detail != "" {
			rows[i] = append(rows[i], p.Faint(w.Detail))
		}
	}
	return tabulated(p, []string{"RANK", "NODE", "SLOT", "PID", "STATE", "GEN", "ATTEMPT"}, rows)
}
