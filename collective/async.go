package collective

import (
	"context"

	"github.com/regroup-io/regroup/collective/internal/frame"
	"github.com/regroup-io/regroup/collective/kernel"
)

// Handle is an operation that was started and may be running.
type Handle struct {
	done chan struct{}
	err  error
}

// Done is closed when the operation is over.
func (h *Handle) Done() <-chan struct{} { return h.done }

// Wait returns the operation's error when it is over, or that of ctx. The end of ctx does not end
// the operation, and its tensors stay in use.
func (h *Handle) Wait(ctx context.Context) error {
	select {
	case <-h.done:
		return h.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// The Start methods begin an operation and return at once. Operations are carried out in the order
// in which they are started or called, which must be the same on all ranks; the tensors must not be
// touched before the handle is done. Only Abort ends one early.

// StartAllreduce starts an Allreduce.
func (c *Communicator) StartAllreduce(t Tensor, op Op) *Handle {
	return c.start(frame.Descriptor{Method: frame.Allreduce, Type: t.Type, Reduce: op}, t, t)
}

// StartAllreduceAs starts an AllreduceAs.
func (c *Communicator) StartAllreduceAs(wire kernel.Type, t Tensor, op Op) *Handle {
	return c.start(narrowAllreduce(wire, t, op), t, t)
}

// StartReduceScatter starts a ReduceScatter.
func (c *Communicator) StartReduceScatter(t Tensor, op Op) *Handle {
	return c.start(frame.Descriptor{Method: frame.ReduceScatter, Type: t.Type, Reduce: op}, t, t)
}

// StartReduce starts a Reduce.
func (c *Communicator) StartReduce(t Tensor, op Op, root int) *Handle {
	return c.start(frame.Descriptor{Method: frame.Reduce, Type: t.Type, Reduce: op, Root: encodeRoot(root)}, t, t)
}

// StartBroadcast starts a Broadcast.
func (c *Communicator) StartBroadcast(t Tensor, root int) *Handle {
	return c.start(frame.Descriptor{Method: frame.Broadcast, Type: t.Type, Root: encodeRoot(root)}, t, t)
}

// StartAllgather starts an Allgather.
func (c *Communicator) StartAllgather(send, recv Tensor) *Handle {
	return c.start(frame.Descriptor{Method: frame.Allgather, Type: recv.Type}, send, recv)
}

// StartAlltoall starts an Alltoall.
func (c *Communicator) StartAlltoall(send, recv Tensor, counts, from []int) *Handle {
	return c.begin(func() error {
		return c.alltoall(context.Background(), send, recv, counts, from, c.engine.Acquire)
	})
}

func (c *Communicator) start(d frame.Descriptor, send, recv Tensor) *Handle {
	if err := c.validate(d, send, recv); err != nil {
		return failed(err)
	}
	return c.begin(func() error { return c.run(context.Background(), d, send, recv, c.engine.Acquire) })
}

// begin queues a task behind what was started before.
func (c *Communicator) begin(task func() error) *Handle {
	h := &Handle{done: make(chan struct{})}
	if !c.started.Add(task, h.end) {
		return failed(c.session.Ended())
	}
	return h
}

// awaitStarted waits until everything that was started before is over.
func (c *Communicator) awaitStarted(ctx context.Context) error {
	if c.started.Pending() == 0 {
		return nil
	}
	return c.begin(func() error { return nil }).Wait(ctx)
}

func failed(err error) *Handle {
	h := &Handle{done: make(chan struct{})}
	h.end(err)
	return h
}

func (h *Handle) end(err error) {
	h.err = err
	close(h.done)
}
