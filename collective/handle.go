package collective

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/regroup-io/regroup/collective/kernel"
)

// Handle is an operation that was started and may be under way.
type Handle struct {
	done chan struct{}
	err  error
	task func() error
}

// started are the operations that wait for those that were started before.
type started struct {
	mu      sync.Mutex
	waiting []*Handle
	running bool                   // a goroutine runs them
	closed  bool                   // none is to be started any more
	last    atomic.Pointer[Handle] // nil = all are over
}

// close is for Close, which then waits for the goroutine if there is one.
func (s *started) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// Done is closed when the operation is over.
func (h *Handle) Done() <-chan struct{} { return h.done }

// Wait returns the operation's error when it is over, or that of ctx. The end of ctx does
// not end the operation, and its tensors stay in use.
func (h *Handle) Wait(ctx context.Context) error {
	select {
	case <-h.done:
		return h.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// The Start functions begin an operation and return at once. Operations are carried out in
// the order in which they are started or called, which must be the same on all ranks; the
// tensors must not be touched before the handle is done. Only Abort ends one early.

// StartAllreduce starts an Allreduce.
func (c *Communicator) StartAllreduce(t Tensor, op Op) *Handle {
	return c.start(func() error { return c.queued(call{method: allreduce, dtype: t.Type, op: op}, t, t) })
}

// StartAllreduceAs starts an AllreduceAs.
func (c *Communicator) StartAllreduceAs(wire kernel.Type, t Tensor, op Op) *Handle {
	k, err := narrowCall(wire, t, op)
	if err != nil {
		return failed(err)
	}
	return c.start(func() error { return c.queued(k, t, t) })
}

// StartReduceScatter starts a ReduceScatter.
func (c *Communicator) StartReduceScatter(t Tensor, op Op) *Handle {
	return c.start(func() error { return c.queued(call{method: reduceScatter, dtype: t.Type, op: op}, t, t) })
}

// StartReduce starts a Reduce.
func (c *Communicator) StartReduce(t Tensor, op Op, root int) *Handle {
	if err := c.validRoot(root); err != nil {
		return failed(err)
	}
	return c.start(func() error { return c.queued(call{method: reduce, dtype: t.Type, op: op, root: uint32(root)}, t, t) })
}

// StartBroadcast starts a Broadcast.
func (c *Communicator) StartBroadcast(t Tensor, root int) *Handle {
	if err := c.validRoot(root); err != nil {
		return failed(err)
	}
	return c.start(func() error { return c.queued(call{method: broadcast, dtype: t.Type, root: uint32(root)}, t, t) })
}

// StartAllgather starts an Allgather.
func (c *Communicator) StartAllgather(send, recv Tensor) *Handle {
	if err := c.validGather(send, recv); err != nil {
		return failed(err)
	}
	return c.start(func() error { return c.queued(call{method: allgather, dtype: recv.Type}, send, recv) })
}

// StartAlltoall starts an Alltoall.
func (c *Communicator) StartAlltoall(send, recv Tensor, counts, from []int) *Handle {
	return c.start(func() error { return c.alltoall(context.Background(), send, recv, counts, from, c.takeTurn) })
}

// queued carries a started operation out.
func (c *Communicator) queued(k call, send, recv Tensor) error {
	return c.doInTurn(context.Background(), k, send, recv, c.takeTurn)
}

func failed(err error) *Handle {
	h := &Handle{done: make(chan struct{}), err: err}
	close(h.done)
	return h
}

// start appends a task to those that were started before, and wakes whoever runs them.
func (c *Communicator) start(task func() error) *Handle {
	h := &Handle{done: make(chan struct{}), task: task}
	c.started.mu.Lock()
	defer c.started.mu.Unlock()
	if c.started.closed {
		return failed(c.ended())
	}
	c.started.waiting = append(c.started.waiting, h)
	c.started.last.Store(h)
	if !c.started.running {
		c.started.running = true
		c.tasks.Go(c.runStarted)
	}
	return h
}

// runStarted runs what was started, until nothing is left.
func (c *Communicator) runStarted() {
	for {
		c.started.mu.Lock()
		if len(c.started.waiting) == 0 {
			c.started.running = false
			c.started.last.Store(nil)
			c.started.mu.Unlock()
			return
		}
		h := c.started.waiting[0]
		c.started.waiting = c.started.waiting[1:]
		c.started.mu.Unlock()
		h.err = h.task()
		h.task = nil // it holds on to the tensors
		close(h.done)
	}
}

// afterStarted waits until everything that was started before is over.
func (c *Communicator) afterStarted(ctx context.Context) error {
	h := c.started.last.Load()
	if h == nil {
		return nil
	}
	select {
	case <-h.done:
		return nil // if it failed, so will what comes next
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
