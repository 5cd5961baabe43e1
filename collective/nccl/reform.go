package nccl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// Way is how Reform works.
type Way string

// The ways, newest first.
const (
	// 2.28.7: stop what runs, in the background, then exclude the lost ranks
	ByRevoking Way = "revoke and shrink"
	// 2.27.3: the same in one call, which blocks the device's thread until kernels stop
	ByShrinking Way = "shrink with abort"
	ByNewID     Way = "abort and start anew"
)

// ReformsBy is how Reform works: the best way of this version. ByNewID means that it cannot.
func (l *Library) ReformsBy() Way {
	switch {
	case l.nccl.CommShrink == nil:
		return ByNewID
	case l.nccl.CommRevoke == nil:
		return ByShrinking
	}
	return ByRevoking
}

// CanShrink returns an error of ErrNeedsID if this rank cannot Reform, or nil. NCCL
// refuses to shrink a communicator on which it has reported an error itself, such as a broken
// network connection: its network thread keeps the error, and every later call returns it.
func (c *Comm) CanShrink() error {
	if c.dev.lib.ReformsBy() == ByNewID {
		return fmt.Errorf("%w: %w", ErrNeedsID, unsupported("shrink", since("CommShrink"), c.dev.lib.version))
	}
	if reported, ok := errors.AsType[*Error](c.Err()); ok {
		return fmt.Errorf("%w: %w", ErrNeedsID, reported)
	}
	return nil
}

// Reform creates the communicator of the survivors from this one, reuses its connections, and ends
// it. Running operations are aborted. survivors are the ranks that remain, ascending; entry i
// becomes rank i. All of them call it with the same; each returns when all are connected.
//
// After an error this communicator still exists, and has failed: Abort it. An error of ErrNeedsID
// says that only a new communicator can help, of Device.Init on all survivors, even if it comes on
// one alone.
func (c *Comm) Reform(ctx context.Context, survivors []int) (*Comm, error) {
	rank, found := slices.BinarySearch(survivors, c.opt.Rank)
	if !found || !slices.IsSorted(survivors) || len(slices.Compact(slices.Clone(survivors))) != len(survivors) ||
		survivors[0] < 0 || survivors[len(survivors)-1] >= c.opt.World {
		return nil, invalid("survivors %v of a world of %d, rank %d among them", survivors, c.opt.World, c.opt.Rank)
	}
	opt := c.opt
	opt.Rank, opt.World = rank, len(survivors)
	c.fail(&AbortedError{errors.New("the communicator is being reformed")})
	var lost []int32
	for r := range c.opt.World {
		if _, stays := slices.BinarySearch(survivors, r); !stays {
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
	ctx, done := withTimeout(ctx, opt.Timeout, string(way))
	defer done()
	b := childInit{op: "ncclCommShrink", call: func(parent uintptr) Code {
		return n.CommShrink(parent, &lost[0], int32(len(lost)), c.child, nil, shrinkAborting)
	}}
	// The parent is not used any more, but may hold an error: NCCL frees that only by aborting.
	how, end := "ncclCommAbort", n.CommAbort
	switch {
	case way == ByRevoking:
		if err := c.revoke(ctx); err != nil {
			return nil, err
		}
		b.call = func(parent uintptr) Code {
			return n.CommShrink(parent, &lost[0], int32(len(lost)), c.child, nil, shrinkPlain)
		}
		if len(lost) == 0 { // NCCL does not shrink by no rank
			b.op = "ncclCommSplit"
			b.call = func(parent uintptr) Code { return n.CommSplit(parent, 0, int32(c.opt.Rank), c.child, nil) }
		}
		how, end = "ncclCommDestroy", n.CommDestroy // nothing runs on it
	case len(lost) == 0:
		return nil, fmt.Errorf("%w: nobody is to be left out", ErrNeedsID)
	}
	next, err := c.initChild(ctx, opt, b)
	if err != nil {
		return nil, needsID(err)
	}
	if err := c.finish(ctx, func(ctx context.Context) error { return c.release(ctx, how, end) }); err != nil {
		return nil, next.discard(ctx, err)
	}
	return next, nil
}

// Revoke fails the communicator, stops its running operations and waits for their end; Reform can
// then shrink it. Where NCCL cannot do that the error is of ErrNeedsID, and Abort stops them.
func (c *Comm) Revoke(ctx context.Context, cause error) error {
	c.fail(&AbortedError{cause})
	if way := c.dev.lib.ReformsBy(); way != ByRevoking {
		return fmt.Errorf("%w: %w", ErrNeedsID, unsupported("revoke", since("CommRevoke"), c.dev.lib.version))
	}
	if err := c.CanShrink(); err != nil {
		return err
	}
	return c.revoke(ctx)
}

// Revoked reports whether nothing runs on the failed communicator because it was revoked.
func (c *Comm) Revoked() bool { return c.revoked }

// revoke stops running operations and waits for their end.
func (c *Comm) revoke(ctx context.Context) error {
	const op = "ncclCommRevoke"
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	if c.revoked {
		return nil
	}
	_, err := c.call(ctx, op, func(native uintptr) Code { return c.dev.lib.nccl.CommRevoke(native, 0) })
	if err == nil {
		err = c.dev.poll(ctx, op, func() (bool, error) { // as in settle, but it has failed already
			state, err := c.state()
			return state == Success && err == nil, err
		})
	}
	c.revoked = err == nil
	return needsID(err)
}

// needsID marks an error of NCCL itself.
func needsID(err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return fmt.Errorf("%w: %w", ErrNeedsID, err)
	}
	return err
}

// childInit is a call that creates a communicator from another one.
type childInit struct {
	op   string
	call func(parent uintptr) Code // must pass on the parent's child field
}

// initChild makes the call and waits for the child. If it fails after NCCL has begun, the parent
// has failed too; a partly created child is ended with it.
func (c *Comm) initChild(ctx context.Context, opt CommOptions, b childInit) (*Comm, error) {
	if err := c.lock(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", b.op, err)
	}
	defer c.unlock()
	if _, err := c.call(ctx, b.op, b.call); err != nil {
		if e, ok := errors.AsType[*Error](err); stuck(err) || ok && e.Code != InvalidArgument {
			c.fail(err)
		}
		return nil, err
	}
	err := c.dev.poll(ctx, b.op, func() (bool, error) {
		state, err := c.state()
		return state == Success && err == nil, err
	})
	if err != nil {
		c.fail(err)
		return nil, err
	}
	// A concurrent Abort takes the child from here too, and frees it.
	native := atomic.SwapUintptr(c.child, 0)
	if native == 0 {
		return nil, c.endedError()
	}
	next := c.dev.newComm(opt)
	next.config = c.config // the child inherited the names
	next.native.Store(native)
	if err := next.readRank(ctx); err != nil {
		return nil, next.discard(ctx, err)
	}
	return next, nil
}

// readRank asks the child for its rank, and starts it.
func (c *Comm) readRank(ctx context.Context) error {
	l := c.dev.lib
	err := c.dev.do(ctx, "ncclCommUserRank", func() error {
		var rank, world int32
		native := c.native.Load()
		err := l.check("ncclCommUserRank", l.nccl.CommUserRank(native, &rank), native)
		if err == nil {
			err = l.check("ncclCommCount", l.nccl.CommCount(native, &world), native)
		}
		c.opt.Rank, c.opt.World = int(rank), int(world)
		return err
	})
	if err != nil {
		return err
	}
	return c.begin(ctx)
}
