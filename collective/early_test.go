package collective

import (
	"errors"
	"testing"
	"time"
)

// TestWhoLeavesAtOnceIsNamedWithoutWaiting: one rank closes as soon as New returns, in which
// moment the others may still be forming.
func TestWhoLeavesAtOnceIsNamedWithoutWaiting(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		eps := endpoints(t, f, 3)
		start := time.Now()
		for g := range uint64(30) {
			errs := each(3, func(rank int) error {
				c, err := New(soon(t), options(eps, g+1, rank))
				if err != nil {
					return err
				}
				defer func() { _ = c.Close() }()
				if rank == 1 {
					return nil
				}
				return c.Barrier(soon(t))
			})
			for _, rank := range []int{0, 2} {
				wantLost(t, rank, errs[rank], 1)
				if !errors.Is(errs[rank], ErrLeft) {
					t.Errorf("generation %d rank %d: %v", g, rank, errs[rank])
				}
			}
			if t.Failed() {
				return
			}
		}
		if took := time.Since(start); took > defaultStallAfter {
			t.Errorf("it took %v", took)
		}
	})
}
