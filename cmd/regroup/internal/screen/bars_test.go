package screen

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/regroup-io/regroup/e2e/terminal"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
)

// printed is a line of a rank on node-a.
func printed(rank int, stream, text string, open bool) Printed {
	return Printed{
		Of: output.Source{Place: ident.Place{Node: "node-a", Slot: ident.Slot(rank)}, Stream: stream}, Rank: ident.Rank(rank),
		Prefix: fmt.Sprintf("[r%d] ", rank), Text: text, Open: open,
	}
}

func line(t *testing.T, s *Sticky, w *terminal.Screen, l Printed) {
	t.Helper()
	if err := s.Line(w, true, l); err != nil {
		t.Fatal(err)
	}
}

func shows(t *testing.T, w *terminal.Screen, want string) {
	t.Helper()
	if got := w.String(); got != want {
		t.Fatalf("it shows\n%s, want\n%s", got, want)
	}
}

// TestBars of several ranks stay at the bottom while lines scroll by, each with its prefix.
func TestBars(t *testing.T) {
	w := &terminal.Screen{Width: 30}
	s := NewSticky(w, true, func() time.Time { return t0 })
	line(t, s, w, printed(1, "stderr", "10%", true))
	s.Set("g1 · step 1")
	line(t, s, w, printed(0, "stderr", "\x1b[32m20%\x1b[0m of a bar that is wider than the screen", true))
	shows(t, w, "[r0] 20% of a bar that is widn\n[r1] 10%\ng1 · step 1\n")
	line(t, s, w, printed(0, "stdout", "printed", false))
	line(t, s, w, printed(1, "stderr", "30%", true))
	if _, err := s.Writer(w).Write([]byte("a message\nand another\n")); err != nil {
		t.Fatal(err)
	}
	shows(t, w, "[r0] printed\na message\nand another\n[r0] 20% of a bar that is widn\n[r1] 30%\ng1 · step 1\n")
	line(t, s, w, printed(0, "stderr", "100%", false))
	line(t, s, w, printed(1, "stderr", "   ", true)) // it was wiped out
	shows(t, w, "[r0] printed\na message\nand another\n[r0] 100%\ng1 · step 1\n")
	line(t, s, w, printed(1, "stderr", "40%", true))
	line(t, s, w, printed(0, "stderr", "next 10%", true))
	s.Drop(printed(0, "stderr", "", false).Of)
	s.Clear()
	shows(t, w, "[r0] printed\na message\nand another\n[r0] 100%\n[r1] 40%\n")
	if err := s.Finish(); err != nil {
		t.Fatal(err)
	}
	shows(t, w, "[r0] printed\na message\nand another\n[r0] 100%\n[r1] 40%\n")
}

// TestManyBars leave space for other lines.
func TestManyBars(t *testing.T) {
	w := &terminal.Screen{Width: 80}
	s := NewSticky(w, true, func() time.Time { return t0 })
	for rank := range 64 {
		line(t, s, w, printed(rank, "stderr", "1%", true))
	}
	line(t, s, w, printed(9, "stdout", "printed", false))
	want := "[r9] printed\n"
	for rank := range 7 {
		want += fmt.Sprintf("[r%d] 1%%\n", rank)
	}
	shows(t, w, want+"… and 57 unfinished lines\n")
}

// TestBarsWithoutATerminal are a line every 30 s, and their last state.
func TestBarsWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	now := t0
	s := NewSticky(&out, false, func() time.Time { return now })
	say := func(after time.Duration, l Printed) {
		t.Helper()
		now = t0.Add(after)
		if err := s.Line(&out, false, l); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		say(time.Duration(i)*time.Second, printed(0, "stderr", fmt.Sprintf("%d%%", i), true))
		if i%40 == 0 {
			say(time.Duration(i)*time.Second, printed(0, "stdout", "printed", false))
		}
	}
	say(100*time.Second, printed(0, "stderr", "100%", false))
	say(101*time.Second, printed(1, "stderr", "0 of 1", true))
	say(140*time.Second, printed(1, "stderr", "1 of 1", true))
	say(141*time.Second, printed(1, "stderr", "1 of 1", false)) // not once more
	say(142*time.Second, printed(1, "stderr", "left", true))
	if err := s.Finish(); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "[r0] printed\n[r0] 30%\n[r0] printed\n[r0] 60%\n[r0] printed\n[r0] 90%\n[r0] 100%\n[r1] 1 of 1\n[r1] left\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
