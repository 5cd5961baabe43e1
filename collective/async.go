package collective

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/regroup-io/regroup/collective/internal/control"
	"github.com/regroup-io/regroup/collective/internal/frame"
	"github.com/regroup-io/regroup/collective/kernel"
)

// Handle is an operation that was started and may be running.
type Handle struct {
	done chan struct{}
	err  error
	task func() error
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
	return c.async.start(func() error {
		return c.alltoall(context.Background(), send, recv, counts, from, c.engine.Acquire)
	})
}

func (c *Communicator) start(d frame.Descriptor, send, recv Tensor) *Handle {
	return c.async.start(func() error { return c.run(context.Background(), d, send, recv, c.engine.Acquire) })
}

func failed(err error) *Handle {
	h := &Handle{done: make(chan struct{}), err: err}
	close(h.done)
	return h
}

// asyncQueue runs operations that were started, one after the other.
type asyncQueue struct {
	session *control.Session
	mu      sync.Mutex
	waiting []*Handle
	running bool                   // a goroutine runs them
	closed  bool                   // no more may be started
	last    atomic.Pointer[Handle] // nil = all are over
}

// close is for Close, which then waits for the goroutine if there is one.
func (q *asyncQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

func (q *asyncQueue) start(task func() error) *Handle {
	h := &Handle{done: make(chan struct{}), task: task}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return failed(q.session.Ended())
	}
	q.waiting = append(q.waiting, h)
	q.last.Store(h)
	if !q.running {
		q.running = true
		q.session.Go(q.run)
	}
	return h
}

// run runs what was started, until nothing is left.
func (q *asyncQueue) run() {
	for {
		q.mu.Lock()
		if len(q.waiting) == 0 {
			q.running = false
			q.last.Store(nil)
			q.mu.Unlock()
			return
		}
		h := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.mu.Unlock()
		h.err = h.task()
		h.task = nil // it refers to the tensors
		close(h.done)
	}
}

// wait waits until everything that was started before is over.
func (q *asyncQueue) wait(ctx context.Context) error {
	h := q.last.Load()
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
