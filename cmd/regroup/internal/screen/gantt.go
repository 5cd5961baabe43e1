package screen

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/services/cluster/timeline"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// Gantt draws a timeline: a row for each incarnation, the generations below, a legend. Width is
// that of the whole picture.
type Gantt struct {
	Palette
	Width int
	ASCII bool
}

type glyphs struct {
	training, running, rendezvous, restoring, failure, unobserved string
}

func (g Gantt) glyphs() glyphs {
	of := func(plain, drawn string) string { return glyph(g.ASCII, plain, drawn) }
	return glyphs{of("#", "█"), of("=", "▄"), of(".", "▒"), of("+", "░"), of("x", "✘"), "?"}
}

// minColumns is the least width of the time axis.
const minColumns = 20

// Draw writes the picture.
func (g Gantt) Draw(w io.Writer, t *timeline.Timeline) error {
	if len(t.Incarnations) == 0 {
		_, err := io.WriteString(w, "no worker has started yet\n")
		return err
	}
	label := len("generation")
	for _, l := range t.Incarnations {
		label = max(label, Width(incarnationName(l)))
	}
	d := drawing{Gantt: g, glyphs: g.glyphs(), t: t, columns: max(minColumns, g.Width-label-1), label: label}
	var b strings.Builder
	b.WriteString(d.row("", d.axis()))
	for _, l := range t.Incarnations {
		b.WriteString(d.row(incarnationName(l), d.incarnation(l)))
	}
	b.WriteString(d.row("generation", d.generations()))
	s := d.glyphs
	has := func(d timeline.Doing) bool {
		return slices.ContainsFunc(t.Incarnations, func(l *timeline.Incarnation) bool {
			return slices.ContainsFunc(l.Stretches, func(s timeline.Stretch) bool { return s.Doing == d })
		})
	}
	training := s.training + " training"
	if has(timeline.Running) {
		training = s.running + " running (no steps are reported)"
	}
	legend := strings.Join([]string{training, s.rendezvous + " rendezvous", s.restoring + " restore", s.failure + " failure"}, "  ")
	if has(timeline.Unobserved) {
		legend += "  " + s.unobserved + " not observed"
	}
	b.WriteString(d.row("", g.Faint(legend)))
	_, err := io.WriteString(w, b.String())
	return err
}

func incarnationName(l *timeline.Incarnation) string {
	if l.Rank < 0 {
		return l.Place.String()
	}
	return fmt.Sprintf("%s r%d", l.Place.Node, l.Rank)
}

type drawing struct {
	Gantt
	glyphs
	t       *timeline.Timeline
	columns int
	label   int
}

func (d drawing) row(name, cells string) string {
	return strings.TrimRight(pad(name, d.label)+" "+cells, " ") + "\n"
}

func (d drawing) total() time.Duration { return max(time.Millisecond, d.t.End.Sub(d.t.Start)) }

func (d drawing) column(at time.Time) int {
	c := int(float64(at.Sub(d.t.Start)) / float64(d.total()) * float64(d.columns))
	return max(0, min(c, d.columns-1))
}

// tickEvery is the least number of columns between two ticks.
const tickEvery = 10

func (d drawing) axis() string {
	step := view.TickStep(d.total(), float64(d.columns)/tickEvery)
	c := newCanvas(d.columns)
	for at := time.Duration(0); at <= d.total(); at += step {
		name := view.TickName(at)
		// a truncated number would be misleading
		if i := d.column(d.t.Start.Add(at)); i+len(name) <= d.columns {
			c.write(i, name)
		}
	}
	return c.String()
}

func (d drawing) incarnation(l *timeline.Incarnation) string {
	c := newCanvas(d.columns)
	glyph := map[timeline.Doing]string{timeline.Training: d.training, timeline.Running: d.running, timeline.Rendezvous: d.rendezvous, timeline.Restoring: d.restoring, timeline.Unobserved: d.unobserved}
	// Pauses have precedence: in a column a pause, however short, hides the training.
	for _, pass := range []timeline.Doing{timeline.Training, timeline.Running, timeline.Unobserved, timeline.Rendezvous, timeline.Restoring} {
		for _, s := range l.Stretches {
			if s.Doing != pass {
				continue
			}
			from, to := d.column(s.From), d.column(s.To)
			if pass != timeline.Training && pass != timeline.Running && to > from && s.To.Sub(s.From) < d.total()/time.Duration(d.columns) {
				to = from // it straddles two columns but is shorter than one
			}
			for i := from; i <= to; i++ {
				c.cells[i] = d.Rank(l.Rank, glyph[s.Doing])
			}
		}
	}
	if l.Failure != "" && !l.Ended.IsZero() {
		i := d.column(l.Ended)
		c.cells[i] = d.Bad(d.failure)
		c.write(i+2, l.Failure)
	}
	return c.String()
}

func (d drawing) generations() string {
	c := newCanvas(d.columns)
	for i, g := range d.t.Generations {
		at := d.column(g.Time)
		room := d.columns - at
		if i+1 < len(d.t.Generations) {
			room = d.column(d.t.Generations[i+1].Time) - at - 1
		}
		long := fmt.Sprintf("%d (world %d)", g.Generation, g.World)
		short := fmt.Sprint(uint64(g.Generation))
		switch {
		case len(long) <= room:
			c.write(at, long)
		case len(short) <= room:
			c.write(at, short)
		}
	}
	return c.String()
}

// canvas is one row of cells, each of one column.
type canvas struct{ cells []string }

func newCanvas(n int) *canvas {
	c := &canvas{cells: make([]string, n)}
	for i := range c.cells {
		c.cells[i] = " "
	}
	return c
}

// write puts text into empty cells, truncated at the edge or at the first used cell.
func (c *canvas) write(at int, text string) {
	for _, r := range text {
		if at >= len(c.cells) || c.cells[at] != " " {
			return
		}
		c.cells[at] = string(r)
		at++
	}
}

func (c *canvas) String() string { return strings.TrimRight(strings.Join(c.cells, ""), " ") }
