package logs

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events/ident"
)

// TestAStateWaitsOnce: however many workers have bars, and however slow the log is, one state of
// each waits to be stored; a finished line is not overtaken by a state that comes later.
func TestAStateWaitsOnce(t *testing.T) {
	l := New(Options{Config: Config{Buffer: 1 << 20}})
	say := func(slot int, text string, open bool) {
		l.Add(Line{Place: ident.Place{Node: "a", Slot: ident.Slot(slot)}, Stream: "stderr", Text: text, Open: open})
	}
	const workers = 100
	for i := range 50 {
		for slot := range workers {
			say(slot, fmt.Sprintf("%d%%", i), true)
		}
		l.Seal()
	}
	if len(l.full) != workers || string(l.full[7].data) != "49%\r" {
		t.Fatalf("%d chunks wait, of %d workers; one is %q", len(l.full), workers, l.full[7].data)
	}
	l.first() // is being stored: it must not be changed
	say(0, "100%", false)
	l.Seal()
	for slot := 1; slot < workers; slot++ { // so that the line of slot 0 is not among the newest
		say(slot, "100%", false)
	}
	l.Seal()
	say(0, "next 1%", true)
	l.Seal()
	say(0, "next 2%", true)
	l.Seal()
	var of []string
	size := 0
	for _, c := range l.full {
		size += len(c.data)
		if c.place.Slot == 0 {
			of = append(of, string(c.data))
		}
	}
	if got := strings.Join(of, "|"); got != "49%\r|100%\n|next 2%\r" || size != l.waiting {
		t.Errorf("the chunks of slot 0 are %q; %d bytes wait, counted are %d", got, size, l.waiting)
	}
	for l.first() != nil {
		l.drop(nil)
	}
	if l.waiting != 0 || len(l.passing) != 0 {
		t.Errorf("at the end %d bytes wait, and %d states", l.waiting, len(l.passing))
	}
}

// TestTheNewestIsStoredBeforeTheEnd: where there is no time to store all output, the newest of each
// stream is, and what is before it is counted.
func TestTheNewestIsStoredBeforeTheEnd(t *testing.T) {
	l := New(Options{Logger: slog.New(slog.DiscardHandler)})
	say := func(slot int, text string, open bool) {
		l.Add(Line{Place: ident.Place{Node: "a", Slot: ident.Slot(slot)}, Stream: "stderr", Text: text, Open: open})
	}
	const printed = 40_000
	say(1, "the only one", false)
	say(2, "1%", true)
	l.Seal()
	sent := l.first() // the worker of slot 1
	for i := range printed {
		say(0, fmt.Sprintf("line %d of a flood", i), false)
	}
	say(0, "the reason", false)
	l.Seal()
	l.shorten()
	if l.full[0] != sent || len(l.full) != 3 {
		t.Fatalf("%d chunks wait", len(l.full))
	}
	text := string(l.full[2].data)
	lost, size := 0, 0
	if _, err := fmt.Sscanf(text, "regroup: %d lines dropped here", &lost); err != nil || !strings.HasSuffix(text, "\nthe reason\n") || lost+strings.Count(text, "of a flood") != printed {
		t.Errorf("%d are lost, and the newest chunk is %.80q", lost, text)
	}
	for _, c := range l.full {
		size += len(c.data)
	}
	if size != l.waiting {
		t.Errorf("%d bytes wait, counted are %d", size, l.waiting)
	}
}
