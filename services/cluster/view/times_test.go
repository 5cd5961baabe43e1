package view

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
)

// TestTheTimesOfASentence: who shows a sentence for a while can keep its ages right.
func TestTheTimesOfASentence(t *testing.T) {
	v := job(events.JobStateSucceeded)
	v.Ended, v.Reason = now.Add(-216*time.Second), "well done"
	e := Explain(Seen{Job: v, Now: now})
	want := []Part{{Text: "mnist-7f3a succeeded "}, {Since: v.Ended}, {Text: " ago: well done."}}
	if !slices.Equal(e.Parts, want) || e.Sentence != "mnist-7f3a succeeded 3m36s ago: well done." {
		t.Errorf("%q of %+v, want %+v", e.Sentence, e.Parts, want)
	}
	if got := textOf(e.Parts, now.Add(12*time.Second)); got != "mnist-7f3a succeeded 3m48s ago: well done." {
		t.Errorf("12 s later it is %q", got)
	}
	w := job(events.JobStateWaiting)
	w.Workers = nil
	e = Explain(Seen{
		Job: w, Now: now, Placement: events.PlacementView{Places: places(2)},
		Round: events.RoundView{State: events.RoundStateSettling, Proposed: 1, Expected: places(2), Until: now.Add(12 * time.Second)},
	})
	if !slices.Contains(e.Parts, Part{Until: now.Add(12 * time.Second)}) || !strings.Contains(e.Sentence, "the last call ends in 12s") {
		t.Errorf("%q of %+v", e.Sentence, e.Parts)
	}
	if got := textOf(e.Parts, now.Add(time.Minute)); !strings.Contains(got, "ends in 0ms") {
		t.Errorf("a minute later it is %q", got)
	}
	v.Reason = "\x02since yesterday\x03 \x02"
	if e := Explain(Seen{Job: v, Now: now}); !strings.HasSuffix(e.Sentence, ": \x02since yesterday\x03 \x02.") {
		t.Errorf("of another's text it makes %q", e.Sentence)
	}
}
