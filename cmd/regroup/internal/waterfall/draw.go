// Package waterfall draws one trace in a terminal: each span with its service, parent, start and
// duration. It reads spans as OTLP carries them (opentelemetry.io/docs/specs/otlp), so that a trace
// can be looked at without a collector.
package waterfall

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
)

// Drawing holds the options of a drawing. Width is that of the whole picture.
type Drawing struct {
	screen.Palette
	Width int
	ASCII bool
}

const (
	maxName = 44 // longer names are truncated
	minBar  = 16 // least columns of the time axis
)

// Draw writes the spans of one trace under a title: name, service, bar, milliseconds. Other traces
// are ignored.
func (d Drawing) Draw(w io.Writer, title string, spans []Span) error {
	nodes := tree(spans)
	if len(nodes) == 0 {
		_, err := fmt.Fprintf(w, "%s\n  no span of it is stored\n", d.Head(title))
		return err
	}
	from, to := nodes[0].Start, nodes[0].End
	nameWidth, serviceWidth := 0, 0
	for _, n := range nodes {
		if n.Start.Before(from) {
			from = n.Start
		}
		if n.End.After(to) {
			to = n.End
		}
		nameWidth = max(nameWidth, screen.Width(d.name(n)))
		serviceWidth = max(serviceWidth, screen.Width(n.Service))
	}
	total := max(time.Microsecond, to.Sub(from))
	const figures = 12 // "  12345.6 ms"
	bar := max(minBar, d.Width-nameWidth-serviceWidth-4-figures)
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s, %s\n", d.Head(title), screen.Span(total), screen.Plural(len(nodes), "span"))
	lost := false
	for _, n := range nodes {
		lost = lost || n.orphan
		line := pad(d.name(n), nameWidth) + "  " + pad(d.Faint(n.Service), serviceWidth) + "  " +
			pad(d.bar(n, from, total, bar), bar) + fmt.Sprintf("%9.1f ms", float64(n.End.Sub(n.Start))/float64(time.Millisecond))
		b.WriteString(line + "\n")
		if n.Error != "" {
			b.WriteString(strings.Repeat("  ", n.depth+1) + d.Bad(n.Error) + "\n")
		}
	}
	if lost {
		b.WriteString(d.Faint(d.mark() + " its parent was not stored\n"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (d Drawing) mark() string {
	if d.ASCII {
		return "?"
	}
	return "┄"
}

func (d Drawing) name(n node) string {
	s := strings.Repeat("  ", n.depth)
	if n.orphan {
		s += d.mark() + " "
	}
	s += n.Name
	if r := []rune(s); len(r) > maxName {
		s = string(r[:maxName-1]) + "…"
		if d.ASCII {
			s = string(r[:maxName-2]) + ".."
		}
	}
	return s
}

// bar is scaled to the whole trace; the shortest span has one column.
func (d Drawing) bar(n node, from time.Time, total time.Duration, columns int) string {
	column := func(t time.Time) int { return int(float64(t.Sub(from)) / float64(total) * float64(columns)) }
	at := max(0, min(column(n.Start), columns-1))
	length := max(1, min(column(n.End), columns)-at)
	glyph := "█"
	if d.ASCII {
		glyph = "#"
	}
	s := strings.Repeat(glyph, length)
	if n.Error != "" {
		s = d.Bad(s)
	} else {
		s = d.Rank(colour(n.Service), s)
	}
	return strings.Repeat(" ", at) + s
}

// colour gives each service one of the colours that ranks have, the same in every trace.
func colour(service string) (sum int) {
	for _, c := range service {
		sum += int(c)
	}
	return sum
}

func pad(s string, n int) string { return s + strings.Repeat(" ", max(0, n-screen.Width(s))) }
