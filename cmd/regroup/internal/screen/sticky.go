package screen

import (
	"io"
	"sync"
	"time"
)

// plainEvery is how often the bottom line is said where it cannot be overwritten.
const plainEvery = 30 * time.Second

// Sticky is a line that stays at the bottom of a terminal while other lines scroll by above it.
// Where there is no terminal it is said as a plain line now and then. It may be used by several at
// once.
type Sticky struct {
	w        io.Writer // stderr
	terminal bool
	now      func() time.Time
	mu       sync.Mutex
	line     string // standing
	said     time.Time
}

// NewSticky makes one on stderr.
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

// Above writes whole lines to w (stdout or stderr, probably the same terminal) above the standing
// one.
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

// Clear takes the line away.
func (s *Sticky) Clear() { s.Set("") }
