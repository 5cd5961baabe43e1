package screen

import (
	"io"
	"sync"
	"time"
)

// plainEvery is the interval of the status line where it cannot be overwritten.
const plainEvery = 30 * time.Second

// Sticky is a status line that stays at the bottom of a terminal while other lines scroll by above
// it. Without a terminal it is printed as a plain line at intervals. It is safe for concurrent use.
type Sticky struct {
	w        io.Writer // stderr
	terminal bool
	now      func() time.Time
	mu       sync.Mutex
	line     string // the current line
	said     time.Time
}

// NewSticky returns a status line on stderr.
func NewSticky(stderr io.Writer, terminal bool, now func() time.Time) *Sticky {
	return &Sticky{w: stderr, terminal: terminal, now: now}
}

const clearLine = "\r\x1b[K"

// Set replaces the line.
func (s *Sticky) Set(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminal {
		if line != s.line {
			s.line = line
			_, _ = io.WriteString(s.w, clearLine+line)
		}
		return
	}
	if now := s.now(); line != "" && (s.said.IsZero() || now.Sub(s.said) >= plainEvery) {
		s.said = now
		_, _ = io.WriteString(s.w, line+"\n")
	}
}

// Above writes whole lines to w (stdout or stderr, probably the same terminal) above the status
// line.
func (s *Sticky) Above(w io.Writer, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line != "" {
		_, _ = io.WriteString(s.w, clearLine)
	}
	_, err := io.WriteString(w, text+"\n")
	if s.line != "" {
		_, _ = io.WriteString(s.w, s.line)
	}
	return err
}

// Clear removes the line.
func (s *Sticky) Clear() { s.Set("") }
