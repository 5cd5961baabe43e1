package screen

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/internal/english"
)

// mostBars is how many unfinished lines are shown at a time: more would not leave space for others
// on a small terminal.
const mostBars = 8

// Without wrapping a line that is wider than the terminal takes one row, which erased relies on.
const (
	wrapOff = "\x1b[?7l"
	wrapOn  = "\x1b[?7h"
)

// Printed is a line of a worker's output, ready for a terminal.
type Printed struct {
	Of     output.Source
	Rank   ident.Rank // unfinished lines are shown in this order
	Prefix string
	Text   string
	Open   bool // the next line of the source replaces it

	Stored     time.Time // by the broker's clock
	Generation ident.Generation
	// Joint is the prefix of one line that stands for equal ones of several ranks of a generation,
	// in their order; nil = the line is never one of those.
	Joint  func(ranks []ident.Rank) string
	others []output.Source // for whose lines it stands too
}

// bar is an unfinished line.
type bar struct {
	Printed
	w       io.Writer
	drawn   bool // at the bottom of the terminal
	printed bool // as a line
}

// Line writes a line of output to w above what stays. An unfinished one stays at the bottom until
// the next one of its source replaces it; live = w is a terminal. Without one it is printed as a
// line every 30 s.
func (s *Sticky) Line(w io.Writer, live bool, l Printed) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.folds == nil || !live {
		return s.print(w, live, l)
	}
	if err := s.fold(l); err != nil || !l.Open {
		return err
	}
	return s.print(w, live, l)
}

// print writes a line now.
func (s *Sticky) print(w io.Writer, live bool, l Printed) error {
	takes := s.pace.Takes(l.Of, l.Open, s.now())
	printed := slices.ContainsFunc(s.bars, func(b bar) bool { return b.printed && b.Of == l.Of && b.Prefix+b.Text == l.Prefix+l.Text })
	s.remove(l.Of)
	for _, of := range l.others {
		s.pace.Takes(of, l.Open, s.now())
		s.remove(of)
	}
	switch {
	case !l.Open && printed: // as its last state
		return nil
	case !l.Open:
		return s.above(w, l.Prefix+l.Text)
	}
	b := bar{Printed: l, w: w, drawn: live && s.terminal}
	wiped := strings.TrimSpace(output.Plain(l.Text)) == ""
	b.printed = takes && !b.drawn && !wiped
	if !wiped {
		s.bars = append(s.bars, b)
		slices.SortStableFunc(s.bars, func(a, b bar) int {
			return cmp.Or(cmp.Compare(a.Rank, b.Rank), a.Of.Place.Compare(b.Of.Place), cmp.Compare(a.Of.Stream, b.Of.Stream))
		})
	}
	if b.printed {
		return s.above(w, l.Prefix+l.Text)
	}
	if b.drawn {
		return s.draw()
	}
	return nil
}

// Drop forgets the unfinished line of a source, which the next line has replaced although it is not
// shown.
func (s *Sticky) Drop(of output.Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace.Takes(of, false, s.now())
	if s.remove(of) {
		_ = s.draw() // the next line fails too
	}
}

func (s *Sticky) draw() error {
	_, err := io.WriteString(s.w, s.erased()+s.bottom())
	return err
}

// Finish prints what is held back and the unfinished lines that are left at the end, and removes
// the status line.
func (s *Sticky) Finish() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.unfold()
	all := s.bars
	s.bars, s.line = nil, ""
	if e := s.erased(); e != "" {
		_, _ = io.WriteString(s.w, e)
	}
	for _, b := range all {
		if b.printed {
			continue
		}
		if err := s.above(b.w, b.Prefix+b.Text); err != nil {
			return err
		}
	}
	return held
}

// remove removes the unfinished line of a source, and reports whether it is drawn.
func (s *Sticky) remove(of output.Source) bool {
	i := slices.IndexFunc(s.bars, func(b bar) bool { return b.Of == of })
	if i < 0 {
		return false
	}
	drawn := s.bars[i].drawn
	s.bars = slices.Delete(s.bars, i, i+1)
	return drawn
}

// bottom returns what draws the lines at the bottom; the cursor stays at the end of the last one.
func (s *Sticky) bottom() string {
	var lines []string
	for _, b := range s.bars {
		if b.drawn {
			lines = append(lines, b.Prefix+b.Text)
		}
	}
	bars := len(lines)
	if n := bars - mostBars + 1; n > 1 {
		lines = append(lines[:mostBars-1], fmt.Sprintf("… and %s", english.Plural(n, "unfinished line")))
	}
	if s.line != "" {
		lines = append(lines, s.line)
	}
	if s.drawn = len(lines); bars == 0 {
		return s.line
	}
	return wrapOff + strings.Join(lines, "\n") + wrapOn
}
