package nccl

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Work is what one Do queued. Wait for it, or it holds an event until the device is
// closed.
type Work struct {
	comm  *Comm
	name  string
	event uintptr // behind it on the stream, 0 = given back; of the device's thread
	done  atomic.Bool
}

// Do queues operations, several as one group, which NCCL starts together. It returns
// when they are queued, which the first time includes making connections, and costs
// NCCL a thread each time, as for every communicator that does not block. Work.Wait
// says when they are done. They begin when what is queued now on the stream after is
// done; nil is for buffers that are ready.
//
// An error of ErrInvalid harms nothing, nor does a context that ends while others
// launch. After any other error the communicator has failed: one that does not block
// keeps every error of a launch and returns it again.
func (c *Comm) Do(ctx context.Context, after *Stream, ops ...Operation) (*Work, error) {
	calls, err := c.prepare(ops)
	if err != nil {
		return nil, err
	}
	w := &Work{comm: c, name: ops[0].name}
	if len(ops) > 1 {
		w.name = fmt.Sprintf("a group of %d operations", len(ops))
	}
	if after != nil && after.dev != c.dev {
		return nil, invalid("the stream is on device %d, not on %d", after.dev.ordinal, c.dev.ordinal)
	}
	ctx, done := c.scope(ctx, w.name)
	defer done()
	if err := c.lock(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", w.name, err)
	}
	defer c.unlock()

	var code Code
	err = c.dev.do(ctx, w.name, func() (err error) {
		if after != nil && after.handle != c.stream.handle {
			if err := c.dev.order(c.stream.handle, after.handle); err != nil {
				return err
			}
		}
		if code, err = c.issue(calls); err == nil && code == Success {
			err = w.mark()
		}
		if err == nil && c.native.Load() == 0 {
			err = c.gone() // Abort freed this thread from the call
		}
		return err
	})
	if stuck(err) {
		c.fail(err)
	}
	if err == nil && code == InProgress {
		// Nothing may be queued on the stream before NCCL has done so.
		err = c.settle(ctx, w.name, w.mark)
	}
	if err != nil {
		return nil, fmt.Errorf("rank %d: %w", c.opt.Rank, err)
	}
	return w, nil
}

// prepare checks operations and makes calls of them.
func (c *Comm) prepare(ops []Operation) (calls []Operation, err error) {
	for _, op := range ops {
		if op.check == nil {
			return nil, invalid("an empty operation")
		}
		if err := op.check(c); err != nil {
			return nil, fmt.Errorf("%s: %w", op.name, err)
		}
		if op.parts != nil {
			if parts := op.parts(c); parts != nil {
				calls = append(calls, parts...)
				continue
			}
		}
		calls = append(calls, op)
	}
	if len(calls) == 0 {
		return nil, invalid("no operation")
	}
	return calls, nil
}

// issue makes the calls. On the device's thread. Abort may take the communicator
// away between two of them if it could not wait for this thread.
func (c *Comm) issue(ops []Operation) (Code, error) {
	n := &c.dev.lib.nccl
	failed := func(op string, code Code, native uintptr) error {
		err := c.dev.lib.failure(op, code, native)
		c.fail(err)
		return err
	}
	native := c.native.Load()
	if native == 0 || c.Err() != nil {
		return 0, c.gone()
	}
	if len(ops) == 1 {
		code := ops[0].call(c, native, c.stream.handle)
		if !code.working() {
			return code, failed(ops[0].name, code, native)
		}
		return code, nil
	}
	if code := n.GroupStart(); code != Success {
		return code, failed("ncclGroupStart", code, native)
	}
	var first error
	for _, op := range ops {
		if c.native.Load() == 0 {
			return 0, fmt.Errorf("%w: %w", errThreadSpoiled, c.gone())
		}
		if code := op.call(c, native, c.stream.handle); !code.working() && first == nil {
			first = failed(op.name, code, native)
		}
	}
	if c.native.Load() == 0 {
		return 0, fmt.Errorf("%w: %w", errThreadSpoiled, c.gone())
	}
	code := n.GroupEnd() // also after an error: else the thread stays in the group
	if first == nil && !code.working() {
		first = failed("ncclGroupEnd", code, native)
	}
	return code, first
}

// mark puts the event behind the operations. On the device's thread.
func (w *Work) mark() (err error) {
	if w.event, err = w.comm.dev.mark(w.comm.stream.handle); err != nil {
		w.comm.fail(err) // nobody can wait for what was queued
		return err
	}
	w.comm.newest = w
	w.comm.underWay.Store(true)
	return nil
}

// Wait returns when the operations are done on the GPU, or the communicator has
// failed. If ctx ends first, they go on, and Wait may be called again.
func (w *Work) Wait(ctx context.Context) error {
	if w.done.Load() {
		return nil
	}
	c := w.comm
	ctx, done := c.scope(ctx, w.name)
	defer done()
	err := c.dev.poll(ctx, w.name, func() (bool, error) {
		if w.done.Load() {
			return true, nil
		}
		if w.event == 0 {
			return false, c.gone()
		}
		passed, err := c.dev.passed(w.event)
		if err == nil {
			_, err = c.state()
		}
		if err != nil {
			c.fail(err)
			return false, err
		}
		if passed {
			if err := c.Err(); err != nil {
				return false, err // aborted kernels end too
			}
			w.done.Store(true)
			w.drop()
		}
		return passed, nil
	})
	if err != nil {
		return fmt.Errorf("rank %d: %w", c.opt.Rank, err)
	}
	return nil
}

// drop gives the event back. On the device's thread.
func (w *Work) drop() {
	if w.event != 0 {
		w.comm.dev.free(w.event)
		w.event = 0
	}
}

// Before makes what is queued on s from now on wait for the operations, without
// waiting here.
func (w *Work) Before(ctx context.Context, s *Stream) error {
	if w.done.Load() {
		return nil
	}
	d := w.comm.dev
	if s.dev != d {
		return invalid("the stream is on device %d, not on %d", s.dev.ordinal, d.ordinal)
	}
	return d.do(ctx, "cuStreamWaitEvent", func() error {
		if w.done.Load() {
			return nil
		}
		if w.event == 0 {
			return w.comm.gone()
		}
		return d.lib.driverError("cuStreamWaitEvent", d.lib.cuda.StreamWaitEvent(s.handle, w.event, 0))
	})
}
