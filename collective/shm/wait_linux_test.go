package shm

import (
	"testing"
	"time"
)

// TestAMemberUnderContentionSleepsAtOnce: without a poll, which would take its processor
// from another thread, and it is woken.
func TestAMemberUnderContentionSleepsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBand(t, 2)
	slept := make(chan struct{}, 100)
	g := b.groups[0]
	g.spins, g.yields = 1<<40, 1<<40                    // it would poll for ever
	g.contention.Noticed(new(time.Duration), time.Hour) // it has not run for an hour
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
