package nccl

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// maxAbortTime limits an ending even if the caller's context allows more. Aborting frees memory
	// of the GPU and joins threads, which takes seconds at most.
	maxAbortTime = 30 * time.Second
	// yieldTimeout is how long Abort waits for the device's thread to leave NCCL, which requires
	// that no thread is inside while it aborts. After that Abort continues: the thread may hang in
	// just what the abort ends.
	yieldTimeout = 200 * time.Millisecond
)

// Abort ends the communicator now, from any goroutine, whatever it is doing: launches and waits
// return an error of ErrAborted, kernels stop. Every rank that remains must call it, because each
// waits for the others of its host.
//
// If Abort does not finish before ctx ends, or within 30 s, the error is of ErrStuck and the
// process must restart. A ctx that has already ended is ignored: having no time left is a reason to
// abort. A second call, like Close after it, waits for the first.
func (c *Comm) Abort(ctx context.Context, cause error) error {
	c.fail(&AbortedError{cause})
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return c.finish(ctx, func(ctx context.Context) error {
		return c.release(ctx, "ncclCommAbort", c.dev.lib.nccl.CommAbort)
	})
}

// Close waits until everything that was launched has finished on all ranks, and frees the
// communicator. All ranks must call it. On a communicator that has failed, and if ctx ends first,
// it aborts.
func (c *Comm) Close(ctx context.Context) error {
	var unfinished error
	err := c.finish(ctx, func(ctx context.Context) error {
		unfinished = c.finalize(ctx)
		c.fail(ErrClosed)
		if unfinished == nil {
			return c.release(ctx, "ncclCommDestroy", c.dev.lib.nccl.CommDestroy)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxAbortTime)
		defer cancel()
		return c.release(ctx, "ncclCommAbort", c.dev.lib.nccl.CommAbort)
	})
	return errors.Join(unfinished, err)
}

func (c *Comm) finalize(ctx context.Context) error {
	const op = "ncclCommFinalize"
	ctx, done := c.scope(ctx, op)
	defer done()
	if err := c.lock(ctx); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	defer c.unlock()
	if _, err := c.call(ctx, op, c.dev.lib.nccl.CommFinalize); err != nil {
		return err
	}
	return c.settle(ctx, op, nil)
}

// finish runs the only ending of the communicator; later callers wait for it.
func (c *Comm) finish(ctx context.Context, end func(context.Context) error) error {
	if c.ending.CompareAndSwap(false, true) {
		c.outcome = end(ctx)
		close(c.ended)
		return c.outcome
	}
	select {
	case <-c.ended:
		return c.outcome
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// release takes the communicator from the device's thread and frees it. The communicator must have
// failed or be finalized.
func (c *Comm) release(ctx context.Context, op string, call func(uintptr) Code) error {
	ctx, cancel := context.WithTimeout(ctx, maxAbortTime)
	defer cancel()
	native := c.native.Swap(0)
	forget := func() error {
		delete(c.dev.watched, c)
		return nil
	}
	short, done := context.WithTimeout(ctx, yieldTimeout)
	left := c.dev.do(short, op, forget) == nil
	done()
	if native == 0 {
		return nil
	}
	err := c.free(ctx, op, call, native)
	if err == nil {
		// A child that was being created when its parent ended is ended after it.
		if child := atomic.SwapUintptr(c.child, 0); child != 0 {
			err = c.free(ctx, "ncclCommAbort", c.dev.lib.nccl.CommAbort, child)
		}
	}
	if err != nil {
		return err
	}
	if !left {
		if err := c.dev.do(ctx, op, forget); err != nil {
			return c.markStuck(&StuckError{Op: "a call that was made before " + op, After: yieldTimeout})
		}
	}
	if c.stream != nil && c.opt.Stream == nil { // otherwise the stream belongs to the creator
		return c.stream.Close(ctx)
	}
	return nil
}

// free makes a call that frees a communicator, on a thread of its own, because it may never return.
func (c *Comm) free(ctx context.Context, op string, call func(uintptr) Code, native uintptr) error {
	began := time.Now()
	result := make(chan error, 1)
	go func() {
		// never unlocked: no other goroutine may get a thread with our context
		runtime.LockOSThread()
		if err := c.dev.lib.driverError("cuCtxSetCurrent", c.dev.lib.cuda.CtxSetCurrent(c.dev.context)); err != nil {
			result <- err
			return
		}
		result <- c.dev.lib.check(op, call(native), 0)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return c.markStuck(&StuckError{Op: op, After: time.Since(began).Round(time.Millisecond)})
	}
}

// markStuck keeps the communicator from being garbage collected: a native thread is still in it.
func (c *Comm) markStuck(err *StuckError) error {
	l := c.dev.lib
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stuck = append(l.stuck, c)
	return err
}

func stuck(err error) bool { return errors.Is(err, ErrStuck) }
