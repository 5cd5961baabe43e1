package screen

import (
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
)

func TestFit(t *testing.T) {
	for text, want := range map[string]string{
		"abcdef\nabc\n":             "abcd…\nabc\n",
		"abcde\n":                   "abcde\n",
		"\x1b[31mabcdef\x1b[0mgh\n": "\x1b[31mabcd…\x1b[0m\n",
	} {
		if got := Fit(text, 5); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestStatusLineWithoutALoss has another value that is reported, the first by name.
func TestStatusLineWithoutALoss(t *testing.T) {
	var p StepRate
	p.Take(events.Progress{Generation: 1, Step: 7, Metrics: map[string]float64{"reward": 1.5, "lr": 0.25}}, time.Unix(100, 0))
	if got := p.Text(); got != "step 7 · lr 0.25" {
		t.Errorf("%q", got)
	}
	p.Take(events.Progress{Generation: 1, Step: 8, Metrics: map[string]float64{"loss": 0.5}}, time.Unix(100, 1))
	if got := p.Text(); got != "step 8 · loss 0.5" {
		t.Errorf("%q", got)
	}
}
