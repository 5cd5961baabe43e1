package control

import "testing"

// TestANewWaiterHasNotWaited: with one that comes long after the last one has gone, nothing has
// been waiting for the stall limit, not even for a moment.
func TestANewWaiterHasNotWaited(t *testing.T) {
	var a activity
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 20_000 {
			a.awaitExternal()()
			a.ticks.Add(2 * stallTicks)
		}
	}()
	for {
		if a.stalled(a.ticks.Load()) {
			t.Fatal("a waiter that has just come is said to have waited for the stall limit")
		}
		select {
		case <-ended:
			return
		default:
		}
	}
}
