// Package terminal stands for a terminal in tests: it shows what the text that was written to it
// looks like.
package terminal

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Screen is a terminal of a width whose lines scroll without end. The zero value has no width.
type Screen struct {
	Width int

	rows     [][]rune
	row, col int
	fixed    bool   // lines do not wrap
	rest     string // a sequence or character that is not complete
}

// Write implements io.Writer. It fails on what a terminal would obey and Regroup must not send.
func (s *Screen) Write(data []byte) (int, error) {
	text := s.rest + string(data)
	for s.rest = ""; text != ""; {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == '\x1b':
			var err error
			if n, err = s.sequence(text); err != nil {
				return 0, err
			}
			if n == 0 {
				s.rest = text
				return len(data), nil
			}
		case r == '\n':
			s.row, s.col = s.row+1, 0
		case r == '\r':
			s.col = 0
		case r == utf8.RuneError && n == 1 && len(text) < utf8.UTFMax:
			s.rest = text
			return len(data), nil
		case r < ' ' || r == 0x7f:
			return 0, fmt.Errorf("the control character %q", r)
		default:
			s.put(r)
		}
		text = text[n:]
	}
	return len(data), nil
}

// sequence obeys the one at the beginning of a text and returns its length; 0 = it is not complete.
func (s *Screen) sequence(text string) (int, error) {
	const begin = "\x1b["
	if !strings.HasPrefix(text, begin) {
		if strings.HasPrefix(begin, text) {
			return 0, nil
		}
		return 0, fmt.Errorf("the sequence %.10q", text)
	}
	end := strings.IndexFunc(text[len(begin):], func(r rune) bool { return r >= '@' && r <= '~' })
	if end < 0 {
		return 0, nil
	}
	parameters, n := text[len(begin):len(begin)+end], len(begin)+end+1
	switch text[len(begin)+end] {
	case 'm':
		if strings.Trim(parameters, "0123456789;:") != "" {
			return 0, fmt.Errorf("the sequence %q", text[:n])
		}
	case 'A':
		up, err := strconv.Atoi(parameters)
		if err != nil || up > s.row {
			return 0, fmt.Errorf("%q in row %d", text[:n], s.row)
		}
		s.row -= up
	case 'K', 'J':
		s.at(s.row)
		if text[n-1] == 'J' {
			s.rows = s.rows[:s.row+1]
		}
		s.rows[s.row] = s.rows[s.row][:min(s.col, len(s.rows[s.row]))]
	case 'l', 'h':
		if parameters != "?7" {
			return 0, fmt.Errorf("the sequence %q", text[:n])
		}
		s.fixed = text[n-1] == 'l'
	default:
		return 0, fmt.Errorf("the sequence %q", text[:n])
	}
	return n, nil
}

// at makes a row exist.
func (s *Screen) at(row int) {
	for len(s.rows) <= row {
		s.rows = append(s.rows, nil)
	}
}

func (s *Screen) put(r rune) {
	if s.col == s.Width {
		if s.fixed {
			s.col--
		} else {
			s.row, s.col = s.row+1, 0
		}
	}
	s.at(s.row)
	for len(s.rows[s.row]) <= s.col {
		s.rows[s.row] = append(s.rows[s.row], ' ')
	}
	s.rows[s.row][s.col] = r
	s.col++
}

// String returns what is seen, without colours.
func (s *Screen) String() string {
	var b strings.Builder
	for _, row := range s.rows {
		b.WriteString(strings.TrimRight(string(row), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// Open returns both ends of a terminal of 24 lines and 100 columns: what is written to user is
// typed at program. They are closed when the test ends.
func Open(t testing.TB) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = user.Close() })
	number, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(user.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100})
	}
	if err == nil {
		program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return user, program
}
