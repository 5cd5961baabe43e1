package collective

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// TestWhoLeavesAtOnceIsNamedWithoutWaiting: one rank closes as soon as New returns, while the
// others may still be forming. Nobody may wait for the stall limit.
func TestWhoLeavesAtOnceIsNamedWithoutWaiting(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		eps := endpoints(t, f, 3)
		for g := range uint64(30) {
			errs := each(3, func(rank int) error {
				o := options(eps, g+1, rank)
				o.StallAfter = time.Hour
				c, err := New(soon(t), o)
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
	})
}

// TestAFailureAtTheEndOfNewIsNotLost: either New returns it, or OnFailure is called.
func TestAFailureAtTheEndOfNewIsNotLost(t *testing.T) {
	eps := endpoints(t, fabrics()[0], 2)
	ctx := soon(t)
	for g := range uint64(2000) {
		failed := make(chan error, 1)
		errs := each(2, func(rank int) error {
			o := options(eps, g+1, rank)
			if rank == 0 {
				o.OnFailure = func(err error) { failed <- err }
			}
			c, err := New(ctx, o)
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			if rank == 1 {
				c.Abort(errors.New("at once"))
				return nil
			}
			select {
			case err = <-failed:
			case <-time.After(patience):
				err = errors.New("nobody said that it failed")
			}
			return err
		})
		if !errors.Is(errs[0], ErrAborted) {
			t.Fatalf("generation %d: %v", g, errs[0])
		}
	}
}

// TestOnFailureIsCalledBeforeCloseReturns: even if Close is called at once.
func TestOnFailureIsCalledBeforeCloseReturns(t *testing.T) {
	for _, world := range []int{1, 2} {
		eps := endpoints(t, fabrics()[0], world)
		for g := range uint64(300) {
			var calls atomic.Int32
			comms := form(t, eps, g+1, func(o *Options) {
				if o.Rank == 0 {
					o.OnFailure = func(error) { calls.Add(1) }
				}
			})
			comms[0].Abort(errors.New("x"))
			_ = comms[0].Close()
			if n := calls.Load(); n != 1 {
				t.Fatalf("world %d generation %d: it was called %d times", world, g, n)
			}
			closeAll(comms)
		}
	}
}
