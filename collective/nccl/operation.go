package nccl

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Operation is one collective, or one direction of a point-to-point exchange, for Comm.Do. Counts
// follow from the sizes of the buffers. All ranks must give operations of the same kind and size,
// in the same order.
type Operation struct {
	name  string
	check func(c *Comm) error
	call  func(c *Comm, native, stream uintptr) Code
}

// AllReduce combines send of all ranks into recv of all ranks. Both may be the same.
func AllReduce(send, recv Buffer, t DataType, op ReduceOp) Operation {
	return Operation{
		name:  "ncclAllReduce",
		check: func(c *Comm) error { return c.fits(t, send, 1, recv, 1) },
		call: func(c *Comm, native, stream uintptr) Code {
			return c.dev.lib.nccl.AllReduce(send.pointer, recv.pointer, send.count(t), t, op, native, stream)
		},
	}
}

// Reduce combines send of all ranks into recv of root. Elsewhere recv may be empty.
func Reduce(send, recv Buffer, t DataType, op ReduceOp, root int) Operation {
	return Operation{
		name:  "ncclReduce",
		check: func(c *Comm) error { return c.fitsRooted(t, root, send, send, recv) },
		call: func(c *Comm, native, stream uintptr) Code {
			return c.dev.lib.nccl.Reduce(send.pointer, recv.pointer, send.count(t), t, op, int32(root), native, stream)
		},
	}
}

// Broadcast copies send of root into recv of all ranks. Elsewhere send may be empty.
func Broadcast(send, recv Buffer, t DataType, root int) Operation {
	return Operation{
		name:  "ncclBroadcast",
		check: func(c *Comm) error { return c.fitsRooted(t, root, recv, send, recv) },
		call: func(c *Comm, native, stream uintptr) Code {
			return c.dev.lib.nccl.Broadcast(send.pointer, recv.pointer, recv.count(t), t, int32(root), native, stream)
		},
	}
}

// AllGather copies send of rank i into the i-th part of recv of all ranks.
func AllGather(send, recv Buffer, t DataType) Operation {
	return Operation{
		name:  "ncclAllGather",
		check: func(c *Comm) error { return c.fits(t, send, c.opt.World, recv, 1) },
		call: func(c *Comm, native, stream uintptr) Code {
			return c.dev.lib.nccl.AllGather(send.pointer, recv.pointer, send.count(t), t, native, stream)
		},
	}
}

// ReduceScatter combines the i-th part of send of all ranks into recv of rank i.
func ReduceScatter(send, recv Buffer, t DataType, op ReduceOp) Operation {
	return Operation{
		name:  "ncclReduceScatter",
		check: func(c *Comm) error { return c.fits(t, send, 1, recv, c.opt.World) },
		call: func(c *Comm, native, stream uintptr) Code {
			return c.dev.lib.nccl.ReduceScatter(send.pointer, recv.pointer, recv.count(t), t, op, native, stream)
		},
	}
}

// Send sends the buffer to the Recv of rank peer. Both wait for each other: ranks that exchange
// give both to one Do.
func Send(buffer Buffer, t DataType, peer int) Operation {
	return Operation{
		name:  "ncclSend",
		check: func(c *Comm) error { return c.fitsRooted(t, peer, buffer, buffer, buffer) },
		call: func(c *Comm, native, stream uintptr) Code {
			return c.dev.lib.nccl.Send(buffer.pointer, buffer.count(t), t, int32(peer), native, stream)
		},
	}
}

// Recv fills the buffer from the Send of rank peer.
func Recv(buffer Buffer, t DataType, peer int) Operation {
	return Operation{
		name:  "ncclRecv",
		check: func(c *Comm) error { return c.fitsRooted(t, peer, buffer, buffer, buffer) },
		call: func(c *Comm, native, stream uintptr) Code {
			return c.dev.lib.nccl.Recv(buffer.pointer, buffer.count(t), t, int32(peer), native, stream)
		},
	}
}

func (b Buffer) count(t DataType) uintptr { return uintptr(b.bytes / t.Bytes()) }

// fits checks that both buffers are on this device, hold whole elements, and that times×a is as
// long as per×b.
func (c *Comm) fits(t DataType, a Buffer, times int, b Buffer, per int) error {
	if t.Bytes() == 0 {
		return invalid("data type %d", t)
	}
	for _, buffer := range []Buffer{a, b} {
		if err := buffer.holds(c.dev, buffer.bytes); err != nil {
			return err
		}
		if buffer.bytes%t.Bytes() != 0 {
			return invalid("%d bytes are no whole elements of %d bytes", buffer.bytes, t.Bytes())
		}
	}
	if a.bytes*times != b.bytes*per {
		return invalid("send has %d bytes and recv %d, in a world of %d", a.bytes, b.bytes, c.opt.World)
	}
	return nil
}

// fitsRooted is fits for an operation with a rank that differs from the others: that one uses send
// and recv, and the others everywhere.
func (c *Comm) fitsRooted(t DataType, rank int, everywhere, send, recv Buffer) error {
	if rank < 0 || rank >= c.opt.World {
		return invalid("rank %d is not within 0 to %d", rank, c.opt.World-1)
	}
	if rank != c.opt.Rank {
		send, recv = everywhere, everywhere
	}
	return c.fits(t, send, 1, recv, 1)
}

// Work is what one Do has queued. Wait for it or Free it, or it keeps an event until the device is
// closed.
type Work struct {
	Event // after it on the stream
	comm  *Comm
	name  string
	done  atomic.Bool
}

// Do queues operations, several as one group, which NCCL starts together. It returns
// when they are queued, which the first time includes making connections, and costs
// NCCL a thread each time, as for every communicator that does not block. Work.Wait
// says when they are done. They begin when the work queued now on the stream after is
// done; nil is for buffers that are ready.
//
// An error of ErrInvalid harms nothing, nor does a context that ends while others
// launch. After any other error the communicator has failed: one that does not block
// keeps every error of a launch and returns it again.
func (c *Comm) Do(ctx context.Context, after *Stream, ops ...Operation) (*Work, error) {
	if err := c.check(ops); err != nil {
		return nil, err
	}
	w := &Work{Event: Event{dev: c.dev}, comm: c, name: ops[0].name}
	if len(ops) > 1 {
		w.name = fmt.Sprintf("a group of %d operations", len(ops))
	}
	if err := after.isOn(c.dev); err != nil {
		return nil, err
	}
	ctx, done := c.scope(ctx, w.name)
	defer done()
	if err := c.lock(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", w.name, err)
	}
	defer c.unlock()

	var code Code
	err := c.dev.do(ctx, w.name, func() (err error) {
		if after != nil && after.handle != c.stream.handle {
			if err := c.dev.order(c.stream.handle, after.handle); err != nil {
				return err
			}
		}
		if code, err = c.issue(ops); err == nil && code == Success {
			err = w.mark()
		}
		if err == nil && c.native.Load() == 0 {
			err = c.endedError() // Abort freed this thread from the call
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

func (c *Comm) check(ops []Operation) error {
	for _, op := range ops {
		if op.check == nil {
			return invalid("an empty operation")
		}
		if err := op.check(c); err != nil {
			return fmt.Errorf("%s: %w", op.name, err)
		}
	}
	if len(ops) == 0 {
		return invalid("no operation")
	}
	return nil
}

// issue makes the calls, on the device's thread. Abort may free the communicator between two of
// them if it could not wait for this thread.
func (c *Comm) issue(ops []Operation) (Code, error) {
	n := &c.dev.lib.nccl
	failed := func(op string, code Code, native uintptr) error {
		err := c.dev.lib.failure(op, code, native)
		c.fail(err)
		return err
	}
	native := c.native.Load()
	if native == 0 || c.Err() != nil {
		return 0, c.endedError()
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
			return 0, fmt.Errorf("%w: %w", errThreadSpoiled, c.endedError())
		}
		if code := op.call(c, native, c.stream.handle); !code.working() && first == nil {
			first = failed(op.name, code, native)
		}
	}
	if c.native.Load() == 0 {
		return 0, fmt.Errorf("%w: %w", errThreadSpoiled, c.endedError())
	}
	code := n.GroupEnd() // also after an error: otherwise the thread stays in the group
	if first == nil && !code.working() {
		first = failed("ncclGroupEnd", code, native)
	}
	return code, first
}

// mark records the event after the operations. It runs on the device's thread.
func (w *Work) mark() (err error) {
	if w.handle, err = w.dev.mark(w.comm.stream.handle); err != nil {
		w.comm.fail(err) // the queued operations cannot be awaited
		return err
	}
	w.comm.newest = w
	w.comm.underWay.Store(true)
	return nil
}

// Wait returns when the operations are done on the GPU, or the communicator has failed. If ctx ends
// first, they continue, and Wait may be called again.
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
		if w.handle == 0 {
			return false, c.endedError()
		}
		passed, err := c.dev.passed(w.handle)
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

// Free frees the event of work that nobody waits for any more.
func (w *Work) Free(ctx context.Context) error {
	if w.done.Load() {
		return nil
	}
	return w.Event.Free(ctx)
}

// Before makes the work queued on s from now on wait for the operations, without blocking the
// caller.
func (w *Work) Before(ctx context.Context, s *Stream) error {
	if w.done.Load() {
		return nil
	}
	d := w.dev
	if err := s.isOn(d); err != nil {
		return err
	}
	return d.do(ctx, "cuStreamWaitEvent", func() error {
		switch {
		case w.done.Load():
			return nil
		case w.handle == 0:
			return w.comm.endedError()
		}
		return d.await(s.handle, w.handle)
	})
}
