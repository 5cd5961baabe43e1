package screen

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/services/cluster/view"
	"github.com/regroup-io/regroup/services/cluster/waterfall"
)

// Waterfall draws one trace: each span with its service, parent, start and duration. Width is that
// of the whole picture.
type Waterfall struct {
	Palette
	Width int
	ASCII bool
}

const (
	maxName  = 44 // longer names are truncated
	maxWhere = 24 // longer places too
	minBar   = 16 // least columns of the time axis
	figures  = 12 // columns of a duration: "  12345.6 ms"
)

// Draw writes the spans of one trace under a title: name, worker or node, service, bar,
// milliseconds. Other traces are ignored.
func (d Waterfall) Draw(w io.Writer, title string, spans []waterfall.Span) error {
	nodes := waterfall.Rows(spans)
	if len(nodes) == 0 {
		_, err := fmt.Fprintf(w, "%s\n  no span of it is stored\n", d.Head(title))
		return err
	}
	from, to := axis(nodes)
	nameWidth, whereWidth, serviceWidth := 0, 0, 0
	for _, n := range nodes {
		nameWidth = max(nameWidth, Width(d.name(n)))
		serviceWidth = max(serviceWidth, Width(n.Service))
		if n.Where != "" {
			whereWidth = max(whereWidth, Width(d.short(n.Where, maxWhere))+2)
		}
	}
	total := max(time.Microsecond, to.Sub(from))
	bar := max(minBar, d.Width-nameWidth-whereWidth-serviceWidth-4-figures)
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s, %s\n", d.Head(title), view.Span(total), english.Plural(len(nodes), "span"))
	lost := false
	for _, n := range nodes {
		lost = lost || n.Orphan
		line := pad(d.name(n), nameWidth) + "  " + pad(d.short(n.Where, maxWhere), whereWidth) + pad(d.Faint(n.Service), serviceWidth) + "  " +
			pad(d.bar(n, from, total, bar), bar) + fmt.Sprintf("%*s", figures, length(n.End.Sub(n.Start)))
		b.WriteString(line + "\n")
		if n.Error != "" {
			b.WriteString(strings.Repeat("  ", n.Depth+1) + d.Bad(n.Error) + "\n")
		}
	}
	if lost {
		b.WriteString(d.Faint(d.mark() + " its parent was not stored\n"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// glyph returns a character for a drawing, or what stands for it in ASCII.
func glyph(ascii bool, plain, drawn string) string {
	if ascii {
		return plain
	}
	return drawn
}

func (d Waterfall) mark() string { return glyph(d.ASCII, "?", "┄") }

func (d Waterfall) name(n waterfall.Row) string {
	s := strings.Repeat("  ", n.Depth)
	if n.Orphan {
		s += d.mark() + " "
	}
	return d.short(s+n.Name, maxName)
}

// short returns a text of at most so many characters.
func (d Waterfall) short(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	more := glyph(d.ASCII, "..", "…")
	return string(r[:most-Width(more)]) + more
}

// length formats a duration in milliseconds, or a long one as people say it.
func length(d time.Duration) string {
	if d >= 100*time.Second {
		return view.Span(d)
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// axis returns the time that is drawn. The runs of workers outlive the root, by hours perhaps, so
// it ends with the root, and what goes on after that is cut. Without a root it has all spans.
func axis(nodes []waterfall.Row) (from, to time.Time) {
	from, to = nodes[0].Start, nodes[0].End
	if nodes[0].Parent == "" {
		for _, n := range nodes {
			if n.Start.Before(from) && !n.End.After(to) {
				from = n.Start
			}
		}
		return from, to
	}
	for _, n := range nodes {
		if n.Start.Before(from) {
			from = n.Start
		}
		if n.End.After(to) {
			to = n.End
		}
	}
	return from, to
}

// bar is scaled to the axis; the shortest span has one column. The ends of one that is cut are
// marked.
func (d Waterfall) bar(n waterfall.Row, from time.Time, total time.Duration, columns int) string {
	column := func(t time.Time) int { return int(float64(t.Sub(from)) / float64(total) * float64(columns)) }
	at := max(0, min(column(n.Start), columns-1))
	width := max(1, min(column(n.End), columns)-at)
	block, before, after := glyph(d.ASCII, "#", "█"), glyph(d.ASCII, "<", "‹"), glyph(d.ASCII, ">", "›")
	s := strings.Repeat(block, width)
	end := from.Add(total)
	switch {
	case !n.Start.Before(end) && n.End.After(end):
		s = after
	case n.End.After(end):
		s = s[:len(s)-len(block)] + after
	}
	if n.Start.Before(from) {
		s = before + strings.TrimPrefix(s, block)
	}
	if n.Error != "" {
		s = d.Bad(s)
	} else {
		s = d.Rank(colour(n.Service), s)
	}
	return strings.Repeat(" ", at) + s
}

// colour gives each service one of the colours that ranks have, the same in every trace.
func colour(service string) (sum ident.Rank) {
	for _, c := range service {
		sum += ident.Rank(c)
	}
	return sum
}
