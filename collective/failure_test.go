package collective

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// loop runs allreduces until one fails, at most n.
func loop(ctx context.Context, c *Communicator, n, length int) error {
	buf := make([]float32, length)
	for range n {
		if err := Allreduce(ctx, c, buf, Sum); err != nil {
			return err
		}
	}
	return nil
}

func TestAbortWakesEveryoneEverywhere(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		var reported atomic.Int32
		comms := group(t, f, 4, func(o *Options) { o.OnFailure = func(error) { reported.Add(1) } })
		ctx, cause := soon(t), errors.New("the agent said so")
		var local time.Duration
		errs := each(4, func(rank int) error {
			if rank != 2 {
				return comms[rank].Barrier(ctx) // never completes: rank 2 does not call it
			}
			done := make(chan error, 1)
			go func() { done <- comms[2].Recv(ctx, 0, make([]byte, 1)) }()
			eventually(t, "Recv waits", func() bool { return comms[2].session.Busy() })
			start := time.Now()
			comms[2].Abort(cause)
			comms[2].Abort(errors.New("too late"))
			err := <-done
			local = time.Since(start)
			return err
		})
		t.Logf("woken locally in %v", local)
		for rank, err := range errs {
			var aborted *AbortedError
			if !errors.As(err, &aborted) || !errors.Is(err, ErrAborted) || aborted.Rank != 2 || !strings.Contains(err.Error(), cause.Error()) {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		if !errors.Is(errs[2], cause) {
			t.Errorf("the cause was lost: %v", errs[2])
		}
		eventually(t, "OnFailure on all ranks", func() bool { return reported.Load() == 4 })
	})
}

func TestAbortWithALostPeerNamesItEverywhere(t *testing.T) {
	comms := group(t, fabrics()[0], 4, nil)
	comms[0].Abort(fmt.Errorf("node n7: %w", &PeerLostError{Rank: 2, Cause: errors.New("node lost")}))
	for rank, err := range each(4, func(rank int) error { return comms[rank].Barrier(soon(t)) }) {
		wantLost(t, rank, err, 2)
	}
}

func TestTheEndOfAContextAbortsARunningOperation(t *testing.T) {
	comms := group(t, fabrics()[1], 3, nil)
	ctx, cancel := context.WithCancel(soon(t))
	errs := each(3, func(rank int) error {
		if rank == 0 {
			eventually(t, "the others wait", func() bool { return comms[1].session.Busy() && comms[2].session.Busy() })
			cancel()
			return nil
		}
		if rank == 1 {
			return comms[1].Barrier(ctx)
		}
		return comms[2].Barrier(soon(t))
	})
	if !errors.Is(errs[1], context.Canceled) || !errors.Is(errs[2], ErrAborted) {
		t.Fatal(errs)
	}
	if err := comms[0].Barrier(ctx); err == nil {
		t.Fatal("a poisoned communicator went on")
	}
}

func TestAContextThatEndedBeforeTheOperationHarmsNobody(t *testing.T) {
	comms := group(t, fabrics()[0], 2, nil)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := comms[0].Barrier(over); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	mustAll(t, 2, func(r int) error { return comms[r].Barrier(soon(t)) })
}

func TestADirectMessageOfAnotherLengthFailsBothSides(t *testing.T) {
	comms := group(t, fabrics()[1], 2, nil)
	errs := each(2, func(rank int) error {
		if rank == 0 {
			return errors.Join(comms[0].Send(soon(t), 1, make([]byte, 8<<20)), comms[0].Barrier(soon(t)))
		}
		return comms[1].Recv(soon(t), 0, make([]byte, 5))
	})
	if !errors.Is(errs[0], ErrDiverged) || !errors.Is(errs[1], ErrDiverged) {
		t.Fatal(errs)
	}
}

func TestACleanEndIsNobodysError(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		var reported atomic.Int32
		comms := form(t, endpoints(t, f, 4), 1, func(o *Options) { o.OnFailure = func(error) { reported.Add(1) } })
		mustAll(t, 4, func(rank int) error {
			err := loop(soon(t), comms[rank], 3, 1<<20)
			_ = comms[rank].Close() // while others may still be in the last operation
			return err
		})
		if reported.Load() != 0 {
			t.Fatal("a clean end was reported as a failure")
		}
		if err := comms[0].Barrier(soon(t)); !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
	})
}

func TestWhoLeavesEarlyIsNamed(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		comms := group(t, f, 4, nil)
		errs := each(4, func(rank int) error {
			if rank == 1 {
				return comms[1].Close()
			}
			return comms[rank].Barrier(soon(t))
		})
		for rank, err := range errs {
			if rank != 1 {
				wantLost(t, rank, err, 1)
				if !errors.Is(err, ErrLeft) {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
		}
	})
}

func TestClosingDuringAnOperationEndsIt(t *testing.T) {
	comms := group(t, fabrics()[1], 3, nil)
	done := make(chan error, 1)
	go func() { done <- comms[0].Barrier(soon(t)) }()
	eventually(t, "the barrier waits", func() bool { return comms[0].session.Busy() })
	_ = comms[0].Close()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	wantLost(t, 1, comms[1].Barrier(soon(t)), 0)
}

func TestDeathIsNoticedWhileNobodyOperates(t *testing.T) {
	f := fabrics()[1]
	r := newRig(f.listen(t, 0), 0)
	eps := append(endpoints(t, f, 2), NewEndpoint(r))
	failures := make(chan error, 2)
	comms := form(t, eps, 1, func(o *Options) {
		if o.Rank < 2 {
			o.OnFailure = func(err error) { failures <- err }
		}
	})
	r.kill()
	for range 2 {
		wantLost(t, -1, <-failures, 2)
	}
	closeAll(comms)
	_ = eps[2].Close()
}
