package contention

import (
	"testing"
	"time"
)

// TestPausesGrow: until the processor has been its own
// for as long as the last pause.
func TestPausesGrow(t *testing.T) {
	t.Parallel()
	var c State
	now := time.Second
	look := func(gap time.Duration) bool {
		before := now
		now += gap
		noticed := c.Noticed(&before, now)
		if before != now {
			t.Fatalf("the last look was at %v, not %v", before, now)
		}
		return noticed
	}
	if look(takenFor-1) || c.Sleeps(now) {
		t.Fatal("a short gap counts")
	}
	for _, want := range []time.Duration{firstPause, 2 * firstPause, 4 * firstPause} {
		if !look(takenFor) || !c.Sleeps(now) || !c.Sleeps(now+want-1) || c.Sleeps(now+want) {
			t.Fatalf("it polls again at %v, not at %v", c.until, now+want)
		}
		now += want
	}
	for range 20 {
		look(takenFor)
		now += c.pause
	}
	if c.pause != lastPause {
		t.Errorf("pauses of %v, at most %v are expected", c.pause, lastPause)
	}
	now += lastPause
	if look(takenFor); c.pause != firstPause {
		t.Errorf("a pause of %v after a quiet time", c.pause)
	}
}
