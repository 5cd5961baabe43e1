package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// View implements tea.Model.
func (m model) View() tea.View {
	v := tea.NewView(m.text())
	v.AltScreen = true
	return v
}

// text is the whole screen.
func (m model) text() string {
	if m.width <= 0 || m.height <= 0 { // the size has not come
		return ""
	}
	head := m.head()
	foot := m.foot()
	room := max(0, m.height-len(head)-len(foot))
	var body []string
	switch {
	case m.help:
		body = m.helpLines()
	case m.heard.IsZero():
	case m.open != nil:
		body = m.open.view(m, room)
	default:
		body = m.list(room)
	}
	body = body[:min(len(body), room)]
	for len(body) < room {
		body = append(body, "")
	}
	return strings.Join(m.fit(slices.Concat(head, body, foot)), "\n")
}

// fit cuts lines at the width, and makes all of a screen that is not live faint.
func (m model) fit(lines []string) []string {
	lines = lines[:min(len(lines), m.height)]
	for i, l := range lines {
		l = ansi.Truncate(l, m.width, "…")
		if !m.live() {
			l = m.o.Palette.Faint(ansi.Strip(l))
		}
		lines[i] = l
	}
	return lines
}

// head is the first line, and an empty one.
func (m model) head() []string {
	switch {
	case m.heard.IsZero() && m.lost:
		return []string{"not connected, never heard, trying again", ""}
	case m.heard.IsZero():
		return []string{"asking the server ...", ""}
	case m.lost:
		return []string{fmt.Sprintf("not connected, last heard %s, trying again; below is what was heard then", m.heard.Format(time.TimeOnly)), ""}
	case !m.live():
		return []string{m.seen.summary() + ": below is what they left", ""}
	}
	return []string{m.seen.summary(), ""}
}

// foot is the last line.
func (m model) foot() []string {
	switch {
	case m.typing:
		return []string{"/" + m.filter + "_"}
	case m.o.In == nil:
		return []string{m.palette().Faint("Ctrl-C ends it")}
	case m.open != nil:
		return []string{m.palette().Faint("Esc back  ↑↓ scroll  ? keys  q ends it")}
	}
	text := "Enter opens  / filters  1-8 sort  ? keys  q ends it"
	if m.filter != "" {
		text = fmt.Sprintf("only %q (Esc: all)  ", m.filter) + text
	}
	return []string{m.palette().Faint(text)}
}

func (m model) helpLines() []string {
	var lines []string
	for _, k := range keysHelp {
		lines = append(lines, fmt.Sprintf("  %-10s %s", k[0], k[1]))
	}
	return append(lines, "", "Columns: "+strings.Join(numbered(), ", "))
}

func numbered() []string {
	all := slices.Clone(header)
	for i := range all {
		all[i] = fmt.Sprintf("%d %s", i+1, all[i])
	}
	return all
}

// tabulated is a table in lines.
func tabulated(p screen.Palette, header []string, rows [][]string) []string {
	var b strings.Builder
	_ = screen.Table(&b, p, header, rows) // a builder takes all
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// list are the jobs, of which those around the cursor are shown, then as many nodes as there is
// room for, and what brokers need attention for.
func (m model) list(room int) []string {
	p, now := m.palette(), m.now()
	all := m.jobs()
	nodes := m.nodes(p, now)
	attention := make([]string, 0, len(m.seen.Brokers.Findings))
	for _, f := range m.seen.Brokers.Findings {
		attention = append(attention, p.Warn("! "+f.Text))
	}
	forJobs := max(2, room-min(len(nodes)+1, max(0, room/3))-min(len(attention)+1, max(0, room/4)))
	lines := m.jobLines(p, all, now, forJobs)
	left := room - len(lines)
	for _, more := range [][]string{attention, nodes} {
		if len(more) == 0 || left < 3 {
			continue
		}
		shown := more[:min(len(more), left-1)]
		if len(shown) < len(more) {
			shown = append(slices.Clone(shown[:len(shown)-1]), p.Faint(fmt.Sprintf("… %d more", len(more)-len(shown)+1)))
		}
		lines = append(append(lines, ""), shown...)
		left = room - len(lines)
	}
	return lines
}

// nodes are those that need attention first.
func (m model) nodes(p screen.Palette, now time.Time) []string {
	if len(m.seen.Nodes) == 0 {
		return nil
	}
	all := slices.Clone(m.seen.Nodes)
	slices.SortStableFunc(all, func(a, b events.NodeView) int {
		return rankOf(a.Schedulable()) - rankOf(b.Schedulable())
	})
	rows := make([][]string, len(all))
	for i, n := range all {
		rows[i] = nodeCells(p, n, now)
	}
	return tabulated(p, nodeHeader, rows)
}

func rankOf(ready bool) int {
	if ready {
		return 1
	}
	return 0
}

// dropped are columns in the order in which they are left out where the width does not suffice.
var dropped = []string{"AGE", "LAST INCIDENT", "GEN", "STEPS/S", "WORKERS"}

// jobLines is the table of jobs in at most room lines, with the cursor.
func (m model) jobLines(p screen.Palette, all []view.Job, now time.Time, room int) []string {
	if len(all) == 0 {
		if m.filter != "" {
			return []string{fmt.Sprintf("none of %s has %q", english.Plural(len(m.seen.Jobs), "job"), m.filter)}
		}
		return []string{"no jobs that have not ended; start one: regroup run -- CMD"}
	}
	columns := slices.Clone(header)
	arrow := "▲"
	if m.reverse {
		arrow = "▼"
	}
	columns[m.sort] += arrow
	at := m.cursor(all)
	visible := max(1, room-1)
	first := max(0, min(at-visible/2, len(all)-visible))
	rows := make([][]string, 0, visible)
	for _, v := range all[first:min(len(all), first+visible)] {
		rows = append(rows, jobCells(p, v.JobView, m.rates, now))
	}
	lines := fitted(p, columns, rows, m.width-2)
	for i := range lines {
		mark := "  "
		if i > 0 && first+i-1 == at {
			mark = "› "
			if p.On {
				lines[i] = "\x1b[7m" + ansi.Strip(lines[i]) + "\x1b[0m"
			}
		}
		lines[i] = mark + lines[i]
	}
	if hidden := len(all) - len(rows); hidden > 0 {
		lines[0] += p.Faint(fmt.Sprintf("  (%d of %s)", len(rows), english.Plural(len(all), "job")))
	}
	return lines
}

// fitted is a table without the columns for which there is no width. The reason of a state comes
// after the columns and may be cut.
func fitted(p screen.Palette, columns []string, rows [][]string, width int) []string {
	for _, name := range append([]string{""}, dropped...) {
		if i := slices.IndexFunc(columns, func(c string) bool { return name != "" && strings.TrimRight(c, "▲▼") == name }); i >= 0 {
			columns = slices.Delete(slices.Clone(columns), i, i+1)
			for n := range rows {
				rows[n] = slices.Delete(slices.Clone(rows[n]), i, i+1)
			}
		}
		needed := 0
		for c := range columns {
			widest := screen.Width(columns[c])
			for _, r := range rows {
				widest = max(widest, screen.Width(r[c]))
			}
			needed += widest + 2
		}
		if needed-2 <= width {
			break
		}
	}
	return tabulated(p, columns, rows)
}
