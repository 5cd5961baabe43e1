package screen

import (
	"fmt"
	"regexp"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/internal/escape"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// Palette colours text, or leaves it unchanged.
type Palette struct{ On bool }

// Modes of colour.
const (
	Auto   = "auto"
	Always = "always"
	Never  = "never"
)

// NewPalette decides whether to use colour: by the flag first, then NO_COLOR (no-color.org),
// CLICOLOR_FORCE (bixense.com/clicolors), TERM=dumb, then whether the output is a terminal.
func NewPalette(mode string, terminal bool, getenv func(string) string) Palette {
	force := getenv("CLICOLOR_FORCE")
	switch {
	case mode == Always, mode == Never:
		return Palette{On: mode == Always}
	case getenv("NO_COLOR") != "":
		return Palette{}
	case force != "" && force != "0":
		return Palette{On: true}
	}
	return Palette{On: terminal && getenv("TERM") != "dumb"}
}

// Codes of ECMA-48 SGR.
const (
	bold    = "1"
	faint   = "2"
	red     = "31"
	green   = "32"
	amber   = "33"
	inverse = "7"
)

func (p Palette) paint(code, s string) string {
	if !p.On || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Bad colours failures.
func (p Palette) Bad(s string) string { return p.paint(red, s) }

// Good colours success.
func (p Palette) Good(s string) string { return p.paint(green, s) }

// Warn colours warnings.
func (p Palette) Warn(s string) string { return p.paint(amber, s) }

// Head colours headings.
func (p Palette) Head(s string) string { return p.paint(bold, s) }

// Faint colours secondary text.
func (p Palette) Faint(s string) string { return p.paint(faint, s) }

// Highlight makes what matches stand out in a line of output. The line loses colours of its own.
func (p Palette) Highlight(re *regexp.Regexp, s string) string {
	if !p.On || !re.MatchString(output.Plain(s)) {
		return s
	}
	return re.ReplaceAllStringFunc(output.Plain(s), func(found string) string { return p.paint(inverse, found) })
}

// rankColours are legible on dark and light backgrounds; red is reserved for failures.
var rankColours = []string{"36", "35", "34", "33", "32", "96", "95", "94", "93", "92"}

// Rank colours text in the colour of a rank.
func (p Palette) Rank(rank ident.Rank, s string) string {
	if rank < 0 {
		return p.Faint(s)
	}
	return p.paint(rankColours[int(rank)%len(rankColours)], s)
}

// Output escapes a line of a worker's output for a terminal, and removes its colours if there are
// to be none.
func (p Palette) Output(s string) string { return escape.Output(s, p.On) }

// Line returns a line of output with its prefix.
func (p Palette) Line(l view.Line) Printed {
	x := Printed{Of: l.Source(), Rank: l.Rank, Prefix: p.Prefix(l.Place, l.Rank, l.Generation) + " ", Text: p.Output(l.Text), Open: l.Open, Stored: l.Time, Generation: l.Generation}
	if l.Rank >= 0 && l.Generation > 0 {
		x.Joint = func(ranks []ident.Rank) string {
			return p.Head(fmt.Sprintf("[r%s %s]", english.Ranges(len(ranks), func(i int) int { return int(ranks[i]) }), l.Generation)) + " "
		}
	}
	return x
}

// Prefix is the prefix of a worker's output: [node-a r2 g3]; without a rank [node-a/1].
func (p Palette) Prefix(place ident.Place, rank ident.Rank, g ident.Generation) string {
	if rank < 0 || g == 0 {
		return p.Rank(ident.NoRank, "["+place.String()+"]")
	}
	return p.Rank(rank, fmt.Sprintf("[%s r%d %s]", place.Node, rank, g))
}

// State colours the state of a job, worker, node or broker.
func (p Palette) State(s string) string {
	switch s {
	case "failed", "failure", "lost", "offline", "silent":
		return p.Bad(s)
	case "succeeded", "success", "ready", "done", "running", "current":
		return p.Good(s)
	case "waiting", "suspected", "stopping", "starting", "draining", "quarantined", "excluded", "behind":
		return p.Warn(s)
	}
	return s
}
