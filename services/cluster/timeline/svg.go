package timeline

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/internal/escape"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// Measures of the picture, in pixels.
const (
	width      = 900
	margin     = 12
	axisFrom   = 172 // where the rows begin, after their names
	axisTo     = width - margin
	rowEvery   = 18
	rowHeight  = 13
	othersHigh = 40 // of the row for all slots that have none of their own
	charWidth  = 6.7
	labelChars = 22 // of the names of rows
	tickEvery  = 80 // the least between two times of the axis
)

// rowsShown is how many slots have a row of their own; the others share one.
const rowsShown = 64

// style has the colours on light and on dark ground.
const style = `
text{font:11px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#24292f}
.title{font-size:14px;font-weight:600}.faint{fill:#57606a}
.ground{fill:#fff}.lane{fill:#eef1f4}.tick{stroke:#d0d7de}.sealed{stroke:#57606a;stroke-dasharray:2 3}
.training{fill:#2f81c1}.running{fill:#9db8d2}.rendezvous{fill:#d29922}.restore{fill:#9a6dd7}.planned{fill:#57a05a}.fault{fill:#cf222e}.phase0{fill:#6e7781}.phase1{fill:#afb8c1}
.unobserved{fill:url(#unknown)}.hatch{stroke:#8c959f;stroke-width:2}.hatched{fill:#fff}
.failure{stroke:#cf222e;stroke-width:2;fill:none}.cause{fill:#cf222e}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.faint{fill:#9aa4af}
.ground{fill:#0d1117}.lane{fill:#1c2128}.tick{stroke:#30363d}.sealed{stroke:#8b949e}
.training{fill:#4493d8}.running{fill:#5d7c9b}.rendezvous{fill:#d9a62e}.restore{fill:#b08ae6}.planned{fill:#63b066}.fault{fill:#f85149}.phase0{fill:#8b949e}.phase1{fill:#484f58}
.hatch{stroke:#6e7681}.hatched{fill:#0d1117}.failure{stroke:#f85149}.cause{fill:#ff7b72}
}
`

// picture is an SVG that is being written.
type picture struct {
	bytes.Buffer
	t *Timeline
	y int // where the next row begins
}

// SVG writes a timeline as a picture that needs nothing else: a row for each slot, the generations,
// and the incidents with their phases. Titles have the exact times. Of more than 64 slots those
// that have failed, then the first, have rows; the others share one, which shows how many did what.
func SVG(w io.Writer, t *Timeline) error {
	p := &picture{t: t}
	shown, others := chosen(rowsOf(t))
	p.y = 62
	lanes := p.y
	for _, r := range shown {
		p.row(r)
	}
	if len(others) > 0 {
		p.others(others)
	}
	p.incidents()
	if len(t.Incarnations) == 0 {
		p.text(margin, p.y+rowHeight, "", "no worker has started yet")
		p.y += rowEvery
	}
	bottom := p.y
	p.generations(lanes, bottom)
	p.legend()
	body := p.Buffer
	p.Buffer = bytes.Buffer{}
	p.head(p.y, bottom)
	p.Write(body.Bytes())
	p.WriteString("</svg>\n")
	_, err := w.Write(p.Bytes())
	return err
}

// chosen splits rows into those that are shown and the others, both in their order.
func chosen(all []row) (shown, others []row) {
	if len(all) <= rowsShown {
		return all, nil
	}
	room := rowsShown - 1
	own := make([]bool, len(all))
	for _, failed := range []bool{true, false} {
		for i := range all {
			if room > 0 && !own[i] && (len(all[i].failures) > 0) == failed {
				own[i] = true
				room--
			}
		}
	}
	for i, r := range all {
		if own[i] {
			shown = append(shown, r)
		} else {
			others = append(others, r)
		}
	}
	return shown, others
}

// head writes what stands above and behind the rows.
func (p *picture) head(height, bottom int) {
	said := p.about()
	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="title about">`+"\n", width, height, width, height)
	fmt.Fprintf(p, "<title id=\"title\">timeline of %s</title>\n<desc id=\"about\">%s</desc>\n<style>%s</style>\n", safe(string(p.t.Job)), safe(said), style)
	p.WriteString(`<defs><pattern id="unknown" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatched" width="6" height="6"/><line class="hatch" x1="0" y1="0" x2="0" y2="6"/></pattern></defs>` + "\n")
	fmt.Fprintf(p, "<rect class=\"ground\" width=\"%d\" height=\"%d\"/>\n", width, height)
	p.text(margin, 22, "title", string(p.t.Job))
	p.text(margin, 38, "faint", said)
	step := view.TickStep(p.total(), float64(axisTo-axisFrom)/tickEvery)
	for n := range int(p.total()/step) + 1 {
		at := time.Duration(n) * step
		x := p.x(p.t.Start.Add(at))
		fmt.Fprintf(p, "<line class=\"tick\" x1=\"%s\" x2=\"%s\" y1=\"56\" y2=\"%d\"/>\n", number(x), number(x), bottom)
		if name := view.TickName(at); x+float64(utf8.RuneCountInString(name))*charWidth <= axisTo {
			p.text(x, 54, "faint", name)
		}
	}
}

// about is the picture in a sentence.
func (p *picture) about() string {
	if p.t.Start.IsZero() {
		return "nothing has happened yet"
	}
	slots := map[ident.Place]bool{}
	for _, l := range p.t.Incarnations {
		slots[l.Place] = true
	}
	text := fmt.Sprintf("%s from %s, %s in %s, %s, %s", view.Span(p.t.End.Sub(p.t.Start)), p.t.Start.UTC().Format("2006-01-02 15:04:05 UTC"),
		english.Plural(len(p.t.Incarnations), "process"), english.Plural(len(slots), "slot"), english.Plural(len(p.t.Generations), "generation"), english.Plural(len(p.t.Incidents), "incident"))
	if !p.t.Over() {
		text += "; the job had not ended"
	}
	return text
}

func (p *picture) total() time.Duration {
	if p.t.Start.IsZero() { // nothing has happened
		return time.Millisecond
	}
	return max(time.Millisecond, p.t.End.Sub(p.t.Start))
}

func (p *picture) x(at time.Time) float64 {
	share := float64(at.Sub(p.t.Start)) / float64(p.total())
	return axisFrom + max(0, min(1, share))*(axisTo-axisFrom)
}

// number writes pixels with one digit after the point, or none.
func number(x float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", x), ".0") }

// safe is a text as XML has it, without characters that a terminal obeys.
func safe(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(escape.Line(s))) // a buffer takes all
	return b.String()
}

func (p *picture) text(x float64, y int, class, text string) {
	if class != "" {
		class = ` class="` + class + `"`
	}
	fmt.Fprintf(p, "<text x=\"%s\" y=\"%d\"%s>%s</text>\n", number(x), y, class, safe(text))
}

// label writes the name of a row, shortened in its middle to the room that there is.
func (p *picture) label(y int, class, name string) {
	room := labelChars
	short := []rune(name)
	if n := len(short); n > room {
		short = slices.Concat(short[:room/2], []rune("…"), short[n-(room-room/2-1):])
	}
	if class != "" {
		class = ` class="` + class + `"`
	}
	fmt.Fprintf(p, "<text x=\"%d\" y=\"%d\"%s>%s<title>%s</title></text>\n", margin, y, class, safe(string(short)), safe(name))
}

// bar draws a period, at least one pixel wide.
func (p *picture) bar(class string, from, to time.Time, y, height int, title string) {
	x := min(p.x(from), axisTo-1)
	fmt.Fprintf(p, "<rect class=\"%s\" x=\"%s\" y=\"%d\" width=\"%s\" height=\"%d\"><title>%s</title></rect>\n",
		class, number(x), y, number(max(1, p.x(to)-x)), height, safe(title))
}

// period is a title: training from 2.1s to 24s (22s).
func (p *picture) period(what string, from, to time.Time) string {
	return fmt.Sprintf("%s from %s to %s (%s)", what, view.Span(from.Sub(p.t.Start)), view.Span(to.Sub(p.t.Start)), view.Span(to.Sub(from)))
}

// doingText is an activity in words.
func doingText(d Doing) string {
	switch d {
	case Unobserved:
		return "not observed"
	case Running:
		return "running, no steps"
	default:
		return string(d)
	}
}

// drawingOrder lets pauses, however short, hide training.
var drawingOrder = []Doing{Training, Running, Unobserved, Rendezvous, Restoring}

func (p *picture) row(r row) {
	fmt.Fprintf(p, "<rect class=\"lane\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", axisFrom, p.y, axisTo-axisFrom, rowHeight)
	p.label(p.y+rowHeight-2, "", r.name())
	for _, doing := range drawingOrder {
		last := -1
		for _, s := range r.stretches {
			column := int(p.x(s.From))
			if s.Doing != doing || column == last && int(p.x(s.To)) == last {
				continue // another of its kind fills the same pixel
			}
			last = column
			p.bar(string(doing), s.From, s.To, p.y, rowHeight, p.period(fmt.Sprintf("%s, attempt %d: %s", r.name(), s.attempt, doingText(doing)), s.From, s.To))
		}
	}
	for i, f := range r.failures {
		p.failure(r, i, f)
	}
	p.y += rowEvery
}

// failure draws a cross where a worker has ended, and what it ended with where nothing else stands.
func (p *picture) failure(r row, i int, f failure) {
	x := p.x(f.at)
	fmt.Fprintf(p, "<path class=\"failure\" d=\"M%s %dl8 8m0 -8l-8 8\"><title>%s</title></path>\n",
		number(x-4), p.y+2, safe(fmt.Sprintf("%s, attempt %d: %s after %s", r.name(), f.attempt, f.what, view.Span(f.at.Sub(p.t.Start)))))
	room := float64(axisTo)
	for _, s := range r.stretches {
		if s.To.After(f.at) {
			room = min(room, p.x(s.From))
		}
	}
	if i+1 < len(r.failures) {
		room = min(room, p.x(r.failures[i+1].at)-6)
	}
	if x+8+float64(utf8.RuneCountInString(f.what))*charWidth <= room {
		p.text(x+8, p.y+rowHeight-2, "cause", f.what)
	}
}

// generations draws where each was sealed, and its number below where there is room for it.
func (p *picture) generations(top, bottom int) {
	if len(p.t.Generations) == 0 {
		return
	}
	p.label(bottom+rowHeight-2, "faint", "generation")
	free := float64(axisFrom)
	last := -1
	for i, g := range p.t.Generations {
		x := p.x(g.Time)
		title := fmt.Sprintf("%s, sealed after %s: %s", g.Generation, view.Span(g.Time.Sub(p.t.Start)), english.Plural(g.World, "worker"))
		if int(x) != last {
			fmt.Fprintf(p, "<line class=\"sealed\" x1=\"%s\" x2=\"%s\" y1=\"%d\" y2=\"%d\"><title>%s</title></line>\n", number(x), number(x), top-3, bottom, safe(title))
		}
		last = int(x)
		next := float64(axisTo)
		if i+1 < len(p.t.Generations) {
			next = p.x(p.t.Generations[i+1].Time)
		}
		for _, name := range []string{fmt.Sprintf("%s (%d)", g.Generation, g.World), g.Generation.String()} {
			if end := x + float64(len(name))*charWidth; x >= free && end <= next-3 {
				p.text(x, bottom+rowHeight-2, "faint", name)
				free = end + 4
				break
			}
		}
	}
	p.y += rowEvery
}

// incidents draws a row with all of them, and below it one with their phases.
func (p *picture) incidents() {
	all := incidentsOf(p.t)
	if len(all) == 0 {
		return
	}
	p.y += 4
	p.label(p.y+rowHeight-2, "", "incidents")
	p.label(p.y+rowEvery+rowHeight-2, "", "their phases")
	for _, i := range all {
		class, text := "fault", fmt.Sprintf("#%d %s", i.Incident, i.Cause)
		if i.Planned {
			class = "planned"
		}
		if i.Open {
			text += ", open"
		}
		p.bar(class, i.From, i.To, p.y, rowHeight, p.period(text, i.From, i.To))
		for n, f := range i.Phases {
			p.bar(phaseClass(n), f.From, f.To, p.y+rowEvery, rowHeight, p.period(fmt.Sprintf("#%d %s", i.Incident, f.Phase), f.From, f.To))
		}
	}
	p.y += 2 * rowEvery
}

// phaseClass gives neighbours other colours.
func phaseClass(n int) string { return []string{"phase0", "phase1"}[n%2] }

func (p *picture) legend() {
	x := float64(axisFrom)
	p.y += 6
	without := Running // a job either reports steps or does not
	if slices.ContainsFunc(p.t.Incarnations, func(l *Incarnation) bool {
		return slices.ContainsFunc(l.Stretches, func(s Stretch) bool { return s.Doing == Running })
	}) {
		without = Training
	}
	next := func(symbol, text int) { // the place of what is that wide, on a new line where the picture ends
		if end := x + float64(symbol) + float64(text)*charWidth; end > axisTo && x > axisFrom {
			x, p.y = axisFrom, p.y+rowEvery
		}
	}
	entry := func(class, name string) {
		next(16, len(name))
		fmt.Fprintf(p, "<rect class=\"%s\" x=\"%s\" y=\"%d\" width=\"12\" height=\"10\"/>\n", class, number(x), p.y)
		p.text(x+16, p.y+9, "faint", name)
		x += 16 + float64(len(name)+3)*charWidth
	}
	for _, d := range drawingOrder {
		if d != without {
			entry(string(d), doingText(d))
		}
	}
	next(14, len("failure"))
	fmt.Fprintf(p, "<path class=\"failure\" d=\"M%s %dl8 8m0 -8l-8 8\"/>\n", number(x), p.y+1)
	p.text(x+14, p.y+9, "faint", "failure")
	x += 14 + 10*charWidth
	entry("fault", "incident")
	entry("planned", "planned change")
	p.y += 20
}
