package collective

import (
	"errors"
	"testing"
	"time"
)

func TestAFrozenRankIsNoticedWhileSomethingElseWaitsForIt(t *testing.T) {
	t.Parallel()
	comms, frozen := icy(t, 3, func(o *Options) { o.StallAfter = 300 * time.Millisecond })
	mustAll(t, 3, func(r int) error { return comms[r].Barrier(soon(t)) })
	comms[1].AwaitExternal()() // it has waited, and does no more
	frozen[2].freeze()
	defer comms[0].AwaitExternal()()
	for r, c := range comms[:2] { // a waiting rank notices, and tells all
		select {
		case <-c.Context().Done():
		case <-soon(t).Done():
			t.Fatalf("rank %d hears of nothing", r)
		}
		wantLost(t, r, c.Failed(), 2)
		if !errors.Is(c.Failed(), ErrSilent) {
			t.Errorf("rank %d: %v", r, c.Failed())
		}
	}
}

func TestCloseDoesNotWaitForExternalWaiters(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		comms := group(t, f, 2, nil)
		for _, c := range comms {
			defer c.AwaitExternal()()
		}
		mustAll(t, 2, func(r int) error { return errors.Join(comms[r].Barrier(soon(t)), comms[r].Close()) })
		for r, c := range comms {
			<-c.Context().Done()
			if err := c.Failed(); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
}
