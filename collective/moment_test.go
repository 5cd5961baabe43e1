package collective

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// moment passes up to a millisecond, or less: a test tries many.
func moment(rng *rand.Rand) {
	for start, d := time.Now(), time.Duration(rng.ExpFloat64()*200)*time.Microsecond; time.Since(start) < d; {
		runtime.Gosched()
	}
}

// upset is what one rank does while all are in the middle of operations.
type upset struct {
	name string
	do   func(c *Communicator, cancel context.CancelCauseFunc)
	// own and others report whether that is the error that operations must end with.
	own, others func(err error) bool
}

var errReason = errors.New("a reason")

func isAbort(err error) bool {
	var a *AbortedError
	return errors.As(err, &a) && a.Rank == upsetRank
}

func isLeave(err error) bool {
	var lost *PeerLostError
	return errors.As(err, &lost) && lost.Rank == upsetRank && errors.Is(err, ErrLeft)
}

func isClosed(err error) bool { return errors.Is(err, ErrClosed) }

const upsetRank = 1

var upsets = []upset{
	{
		"Close",
		func(c *Communicator, _ context.CancelCauseFunc) { _ = c.Close() },
		isClosed, isLeave,
	}, {
		"Abort",
		func(c *Communicator, _ context.CancelCauseFunc) { c.Abort(errReason) },
		isAbort, isAbort,
	}, {
		"loss",
		func(c *Communicator, _ context.CancelCauseFunc) {
			c.Abort(&PeerLostError{Rank: upsetRank, Cause: ErrLeft})
		},
		isLeave, isLeave,
	}, {
		// Between two operations nothing happens: the rank leaves then.
		"end of the context",
		func(_ *Communicator, cancel context.CancelCauseFunc) { cancel(errReason) },
		func(err error) bool { return errors.Is(err, errReason) },
		func(err error) bool { return isAbort(err) || isLeave(err) },
	}, {
		"all at once",
		func(c *Communicator, cancel context.CancelCauseFunc) {
			go cancel(errReason)
			go c.Abort(errReason)
			go func() { _ = c.Close() }()
			_ = c.Close()
		},
		func(err error) bool { return isClosed(err) || isAbort(err) || errors.Is(err, errReason) },
		func(err error) bool { return isAbort(err) || isLeave(err) },
	},
}

// TestOperationsEndWithWhateverHappensAtAnyMoment: also operations that wait for others, messages,
// and connections that are being made.
func TestOperationsEndWithWhateverHappensAtAnyMoment(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		times := 40
		if raced {
			times = 10
		}
		for k, u := range upsets {
			t.Run(u.name, func(t *testing.T) {
				eps := endpoints(t, f, 3)
				rng := rand.New(rand.NewPCG(uint64(k), 5))
				for n := range times {
					if err := u.happen(soon(t), eps, uint64(n+1), rng); err != nil {
						t.Fatalf("time %d: %v", n, err)
					}
				}
			})
		}
	})
}

func (u upset) happen(ctx context.Context, eps []*Endpoint, generation uint64, rng *rand.Rand) error {
	comms := make([]*Communicator, len(eps))
	inline, reported := []int{0, -1}[rng.IntN(2)], atomic.Pointer[error]{}
	if err := errors.Join(each(len(eps), func(rank int) (err error) {
		o := options(eps, generation, rank)
		o.InlineBytes, o.ChunkBytes = inline, 10_000
		if rank == upsetRank && u.name == "Close" {
			o.OnFailure = func(err error) { reported.Store(&err) }
		}
		comms[rank], err = New(ctx, o)
		return err
	})...); err != nil {
		return err
	}
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	const callers = 4
	errs := each(len(eps)*callers+1, func(i int) error {
		if i == len(eps)*callers {
			moment(rng)
			u.do(comms[upsetRank], cancel)
			return nil
		}
		c, ctx := comms[i%len(eps)], ctx
		if c.Rank() == upsetRank {
			ctx = own
		}
		for {
			if err := call1(ctx, c, i/len(eps)); err != nil {
				if c.Failed() == nil { // the context ended between two operations
					_ = c.Close()
				}
				return err
			}
		}
	})
	closeAll(comms)
	if err := reported.Load(); err != nil {
		return fmt.Errorf("who closes is told that it failed: %w", *err)
	}
	for i, err := range errs[:len(errs)-1] {
		is := u.others
		if i%len(eps) == upsetRank {
			is = u.own
		}
		if !is(err) && !errors.Is(err, ErrClosed) { // by a caller of the same rank that was faster
			return fmt.Errorf("rank %d, caller %d: %w", i%len(eps), i/len(eps), err)
		}
	}
	return nil
}

// call1 is what a caller does in a loop: two reduce, one sends and one receives.
func call1(ctx context.Context, c *Communicator, who int) error {
	next, before := (c.Rank()+1)%c.World(), (c.Rank()+c.World()-1)%c.World()
	switch who {
	case 0:
		return c.Send(ctx, next, make([]byte, 30_000))
	case 1:
		return c.Recv(ctx, before, make([]byte, 30_000))
	}
	return Allreduce(ctx, c, make([]float32, 20_000), Sum)
}
