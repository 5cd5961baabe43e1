package nccl

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Survivors say how a communicator goes on after a loss. All of them must give the
// same, but each its own Comm.
type Survivors struct {
	// Ranks of the failed communicator that go on, ascending. Its i-th entry becomes rank i.
	Ranks []int
	// ID of a new communicator. Nil: without one, out of the old connections, as
	// Library.ReformsBy says. CanShrink says whether that can work; if it cannot on one
	// survivor, all of them need an id.
	ID *UniqueID
}

// Way is how Reform goes about it.
type Way string

// The ways, newest first.
const (
	ByRevoking  Way = "revoke and shrink" // 2.28.7: stop what runs, in the background, then leave the lost out
	ByShrinking Way = "shrink with abort" // 2.27.3: the same in one call, which blocks the device's thread until kernels stop
	ByNewID     Way = "abort and start anew"
)

// ReformsBy is how Reform works without an id: the best way that this version has.
// ByNewID means that it needs one.
func (l *Library) ReformsBy() Way {
	switch {
	case l.nccl.CommShrink == nil:
		return ByNewID
	case l.nccl.CommRevoke == nil:
		return ByShrinking
	}
	return ByRevoking
}

// CanShrink says what speaks against Reform without an id on this rank, as an error
// of ErrNeedsID, or nil. NCCL refuses to shrink a communicator on which it has itself
// reported an error, as it does for connections over a network that break: its
// network thread keeps the error, and every later call returns it.
func (c *Comm) CanShrink() error {
	if c.dev.lib.ReformsBy() == ByNewID {
		return fmt.Errorf("%w: %w", ErrNeedsID, unsupported("shrink", since("CommShrink"), c.dev.lib.version))
	}
	var reported *Error
	if errors.As(c.Err(), &reported) {
		return fmt.Errorf("%w: %w", ErrNeedsID, reported)
	}
	return nil
}

// Reform makes the communicator of those that are left and ends this one. Whatever
// runs on it is aborted. All survivors call it; each returns when all are connected.
//
// After an error this communicator still is there, failed: agree on an id and call
// Reform again with it, or Abort. An error of ErrNeedsID says that only that can help.
func (c *Comm) Reform(ctx context.Context, s Survivors) (*Comm, error) {
	rank, found := slices.BinarySearch(s.Ranks, c.opt.Rank)
	if !found || !slices.IsSorted(s.Ranks) || len(slices.Compact(slices.Clone(s.Ranks))) != len(s.Ranks) ||
		s.Ranks[0] < 0 || s.Ranks[len(s.Ranks)-1] >= c.opt.World {
		return nil, invalid("survivors %v of a world of %d, rank %d among them", s.Ranks, c.opt.World, c.opt.Rank)
	}
	opt := c.opt
	opt.Rank, opt.World, opt.Joins = rank, len(s.Ranks), false
	c.fail(&AbortedError{errors.New("the communicator is being reformed")})
	if s.ID != nil {
		if err := c.Abort(ctx, c.Err()); err != nil {
			return nil, err
		}
		opt.ID = *s.ID
		return c.dev.Init(ctx, opt)
	}
	var lost []int32
	for r := range c.opt.World {
		if _, stays := slices.BinarySearch(s.Ranks, r); !stays {
			lost = append(lost, int32(r))
		}
	}
	next, err := c.shrink(ctx, opt, lost)
	if err != nil {
		return nil, fmt.Errorf("rank %d: %s: %w", c.opt.Rank, c.dev.lib.ReformsBy(), err)
	}
	return next, nil
}

func (c *Comm) shrink(ctx context.Context, opt CommOptions, lost []int32) (*Comm, error) {
	n, way := &c.dev.lib.nccl, c.dev.lib.ReformsBy()
	if way == ByNewID {
		return nil, c.CanShrink()
	}
	ctx, done := patient(ctx, opt.Patience, string(way))
	defer done()
	b := birth{op: "ncclCommShrink", call: func(parent uintptr) Code {
		return n.CommShrink(parent, &lost[0], int32(len(lost)), c.child, nil, shrinkAborting)
	}}
	// The parent is of no use after it, but may hold an error: NCCL frees that only by aborting.
	how, end := "ncclCommAbort", n.CommAbort
	switch {
	case way == ByRevoking:
		if err := c.revoke(ctx); err != nil {
			return nil, err
		}
		b.call = func(parent uintptr) Code {
			return n.CommShrink(parent, &lost[0], int32(len(lost)), c.child, nil, shrinkPlain)
		}
		if len(lost) == 0 { // NCCL does not shrink by nobody
			b.op = "ncclCommSplit"
			b.call = func(parent uintptr) Code { return n.CommSplit(parent, 0, int32(c.opt.Rank), c.child, nil) }
		}
		how, end = "ncclCommDestroy", n.CommDestroy // it is quiet
	case len(lost) == 0:
		return nil, fmt.Errorf("%w: nobody is to be left out", ErrNeedsID)
	}
	next, err := c.descend(ctx, opt, b)
	if err != nil {
		return nil, needsID(err)
	}
	if err := c.finish(ctx, func(ctx context.Context) error { return c.release(ctx, how, end) }); err != nil {
		return nil, next.discard(ctx, err)
	}
	return next, nil
}

// revoke stops what runs and waits until the communicator is quiet, which it stays.
func (c *Comm) revoke(ctx context.Context) error {
	const op = "ncclCommRevoke"
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	if c.revoked {
		return nil
	}
	err := c.dev.do(ctx, op, func() error {
		native := c.native.Load()
		if native == 0 {
			return c.gone()
		}
		if code := c.dev.lib.nccl.CommRevoke(native, 0); !code.working() {
			return c.dev.lib.failure(op, code, native)
		}
		return nil
	})
	if err == nil {
		err = c.quiet(ctx, op)
	}
	c.revoked = err == nil
	return needsID(err)
}

// quiet is settle for a communicator that has failed already.
func (c *Comm) quiet(ctx context.Context, op string) error {
	return c.dev.poll(ctx, op, func() (bool, error) {
		state, err := c.state()
		return state == Success && err == nil, err
	})
}

// needsID marks an error of NCCL itself.
func needsID(err error) error {
	var refused *Error
	if errors.As(err, &refused) {
		return fmt.Errorf("%w: %w", ErrNeedsID, err)
	}
	return err
}
