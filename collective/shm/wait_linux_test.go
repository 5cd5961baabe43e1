package shm

import (
	"testing"
	"time"
)

// TestAMemberUnderContentionPausesForLongerEachTime: until the processor has been its own
// for as long as the last pause.
func TestAMemberUnderContentionPausesForLongerEachTime(t *testing.T) {
	t.Parallel()
	var c contention
	now := time.Second
	look := func(gap time.Duration) bool {
		before := now
		now += gap
		noticed := c.noticed(&before, now)
		if before != now {
			t.Fatalf("the last look was at %v, not %v", before, now)
		}
		return noticed
	}
	if look(takenFor-1) || c.sleeps(now) {
		t.Fatal("a short gap counts")
	}
	for _, want := range []time.Duration{firstPause, 2 * firstPause, 4 * firstPause} {
		if !look(takenFor) || !c.sleeps(now) || !c.sleeps(now+want-1) || c.sleeps(now+want) {
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

// TestAMemberUnderContentionSleepsAtOnce: without a poll, which would take its processor
// from another thread, and it is woken.
func TestAMemberUnderContentionSleepsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBand(t, 2)
	slept := make(chan struct{}, 100)
	g := b.groups[0]
	g.spins, g.yields = 1<<40, 1<<40 // it would poll for ever
	g.contention.until = time.Hour
	g.OnSleep = func() { slept <- struct{}{} }
	err := each(2, func(rank int) error {
		if rank == 1 {
			<-slept
		}
		return b.groups[rank].Barrier(descriptor(1))
	})
	if err != nil {
		t.Error(err)
	}
}
