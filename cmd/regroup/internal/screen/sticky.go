package screen

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/regroup-io/regroup/events/output"
)

// plainEvery is the interval of the status line where it cannot be overwritten.
const plainEvery = 30 * time.Second

// Sticky is what stays at the bottom of a terminal while lines scroll by above it: the lines of
// workers that are not finished, such as progress bars, and a status line. Without a terminal the
// status line is printed as a plain line at intervals. It is safe for concurrent use.
type Sticky struct {
	w        io.Writer // stderr
	terminal bool
	now      func() time.Time
	mu       sync.Mutex
	line     string // the status line
	said     time.Time
	bars     []bar
	drawn    int // lines at the bottom of the terminal
	pace     output.Pace
	folds    *folding // nil = each line is printed at once
}

// NewSticky returns a status line on stderr.
func NewSticky(stderr io.Writer, terminal bool, now func() time.Time) *Sticky {
	return &Sticky{w: stderr, terminal: terminal, now: now}
}

const (
	clearLine  = "\r\x1b[K"
	clearBelow = "\r\x1b[%dA\x1b[J" // from that many lines further up
)

// Set replaces the status line.
func (s *Sticky) Set(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminal {
		if line != s.line {
			s.line = line
			_, _ = io.WriteString(s.w, cmp.Or(s.erased(), clearLine)+s.bottom())
		}
		return
	}
	if now := s.now(); line != "" && (s.said.IsZero() || now.Sub(s.said) >= plainEvery) {
		s.said = now
		_, _ = io.WriteString(s.w, line+"\n")
	}
}

// Above writes whole lines to w (stdout or stderr, probably the same terminal) above the pinned
// lines.
func (s *Sticky) Above(w io.Writer, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.unfold(), s.above(w, text))
}

func (s *Sticky) above(w io.Writer, text string) error {
	if e := s.erased(); e != "" {
		_, _ = io.WriteString(s.w, e)
	}
	_, err := io.WriteString(w, text+"\n")
	if b := s.bottom(); b != "" {
		_, _ = io.WriteString(s.w, b)
	}
	return err
}

// erased returns the escape sequence that clears the pinned lines, and marks them as cleared.
func (s *Sticky) erased() string {
	switch n := s.drawn; {
	case n == 0:
		return ""
	case n == 1:
		s.drawn = 0
		return clearLine
	default:
		s.drawn = 0
		return fmt.Sprintf(clearBelow, n-1)
	}
}

// Clear removes the status line.
func (s *Sticky) Clear() { s.Set("") }

// Writer returns a writer whose lines come above the pinned lines.
func (s *Sticky) Writer(w io.Writer) io.Writer { return &above{s: s, w: w} }

// above holds what is not a whole line yet.
type above struct {
	s    *Sticky
	w    io.Writer
	rest []byte
}

// Write implements io.Writer.
func (a *above) Write(data []byte) (int, error) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	a.rest = append(a.rest, data...)
	i := bytes.LastIndexByte(a.rest, '\n')
	if i < 0 {
		return len(data), nil
	}
	text := strings.TrimSuffix(string(a.rest[:i+1]), "\n")
	a.rest = append(a.rest[:0], a.rest[i+1:]...)
	return len(data), errors.Join(a.s.unfold(), a.s.above(a.w, text))
}
