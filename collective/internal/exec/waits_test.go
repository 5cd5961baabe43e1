package exec

import (
	"runtime"
	"testing"
	"time"
)

// TestWaits: a rank polls, or yields to the others where they are more than the processors, and
// sleeps where other programs want its processor.
func TestWaits(t *testing.T) {
	few, many := waitsOf(Config{World: 1}), waitsOf(Config{World: runtime.NumCPU() + 1})
	if few.spins == 0 || few.yields != 0 || many.spins != 0 || many.yields == 0 {
		t.Errorf("one rank: %d polls and %d yields; one more than processors: %d and %d", few.spins, few.yields, many.spins, many.yields)
	}
	w := waits{spins: 2, yields: 3, began: time.Now()}
	for polls, want := range map[int]bool{0: true, 1: true, 2: true, 5: false, 6: false} {
		if got := w.again(polls); got != want {
			t.Errorf("after %d polls: again = %v", polls, got)
		}
	}
	w.contention.Noticed(new(time.Duration), time.Hour) // it has not run for an hour
	if !w.again(1) || w.again(2) {
		t.Error("under contention it does not sleep once it has polled")
	}
	w = waits{yields: 3, began: time.Now().Add(-time.Second)} // it last looked a second ago
	if w.again(1) || !w.contention.Sleeps(w.looked) {
		t.Error("it has not noticed that its processor was taken")
	}
}
