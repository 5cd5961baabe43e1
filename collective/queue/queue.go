package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
)

// Options of a queue. Comm is required; all ranks need the same ThresholdBytes.
type Options struct {
	Comm *collective.Communicator
	// Memory makes the buffer in which tensors are packed, such as Endpoint.Alloc, and
	// Release gives it back; nil = ordinary memory.
	Memory  func(bytes int) ([]byte, error)
	Release func([]byte)
	// ThresholdBytes is up to how much is packed together. Zero means 64 MiB, negative
	// nothing.
	ThresholdBytes int
	// Cycle is how long the first pending operation waits for others to join it. Zero means
	// not at all: they are collected while an earlier cycle runs.
	Cycle time.Duration
	// StallAfter is how long an operation may be pending until OnStall is told which ranks
	// have not submitted it. Zero means a minute, negative never.
	StallAfter time.Duration
	OnStall    func(Stall)
}

// Stall is an operation that some ranks have submitted and others have not.
type Stall struct {
	Name    string // empty = an operation of the queue itself
	Pending time.Duration
	Missing []int // ranks, as far as known
}

const (
	defaultThreshold = 64 << 20
	defaultStall     = time.Minute
	fruitless        = time.Millisecond // between cycles that found nothing
)

// ErrPending says that an operation of the same name has not ended yet.
var ErrPending = errors.New("an operation of this name is pending")

// MismatchError says that ranks submitted different things under one name.
type MismatchError struct {
	Name  string
	Kinds []string // by rank
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%q is not the same on all ranks: %q", e.Name, e.Kinds)
}

// Queue is one rank's. Its methods are safe for concurrent use.
type Queue struct {
	opt    Options
	wake   chan struct{}
	done   chan struct{}
	life   context.Context //nolint:containedctx // the queue's own end, not a caller's
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	pending map[string]*request
	order   []*request // of pending, as submitted
	failed  error

	// Of the goroutine.
	table  table
	buffer []byte
	vote   []byte
}

// request is an operation that was submitted.
type request struct {
	name, kind string
	fuse       fusion // zero = alone
	tensor     collective.Tensor
	do         func(context.Context) error
	handle     *Handle
	since      time.Time
	reported   bool
}

// Handle is a submitted operation.
type Handle struct {
	done chan struct{}
	err  error
}

// Done is closed when the operation is over.
func (h *Handle) Done() <-chan struct{} { return h.done }

// Wait returns the operation's error when it is over, or that of ctx.
func (h *Handle) Wait(ctx context.Context) error {
	select {
	case <-h.done:
		return h.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *Handle) end(err error) {
	h.err = err
	close(h.done)
}

// New starts a queue. Close it before its communicator.
func New(o Options) *Queue {
	if o.ThresholdBytes == 0 {
		o.ThresholdBytes = defaultThreshold
	}
	if o.StallAfter == 0 {
		o.StallAfter = defaultStall
	}
	if o.Memory == nil {
		o.Memory, o.Release = func(n int) ([]byte, error) { return make([]byte, n), nil }, func([]byte) {}
	}
	q := &Queue{opt: o, wake: make(chan struct{}, 1), done: make(chan struct{}), pending: map[string]*request{}}
	q.life, q.cancel = context.WithCancelCause(context.Background())
	q.table.init()
	go q.run()
	return q
}

// Allreduce submits an allreduce, whose elements travel as wire if that is not zero (see
// Communicator.AllreduceAs). The tensor must not be touched until it is done.
func (q *Queue) Allreduce(name string, t collective.Tensor, op collective.Op, wire kernel.Type) *Handle {
	f := fusion{dtype: t.Type, op: op, wire: wire}
	return q.submit(&request{
		name: name, kind: fmt.Sprintf("allreduce of %d %v, %v, as %d", t.Len(), t.Type, op, wire), fuse: f, tensor: t,
		do: func(ctx context.Context) error { return q.allreduce(ctx, f, t) },
	})
}

// Do submits any other operation: do carries it out on the communicator. kind is what must
// be the same on all ranks.
func (q *Queue) Do(name, kind string, do func(context.Context, *collective.Communicator) error) *Handle {
	return q.submit(&request{name: name, kind: kind, do: func(ctx context.Context) error { return do(ctx, q.opt.Comm) }})
}

func (q *Queue) submit(r *request) *Handle {
	r.handle, r.since = &Handle{done: make(chan struct{})}, time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.failed != nil:
		r.handle.end(q.failed)
	case q.pending[r.name] != nil:
		r.handle.end(fmt.Errorf("%q: %w", r.name, ErrPending))
	default:
		q.pending[r.name] = r
		q.order = append(q.order, r)
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
	return r.handle
}

// take removes requests that are about to end.
func (q *Queue) take(all []*request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range all {
		delete(q.pending, r.name)
	}
	kept := q.order[:0]
	for _, r := range q.order {
		if q.pending[r.name] == r {
			kept = append(kept, r)
		}
	}
	clear(q.order[len(kept):])
	q.order = kept
}

func (q *Queue) snapshot() []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]*request(nil), q.order...)
}

// fail ends everything that is pending and all that comes later.
func (q *Queue) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failed == nil {
		q.failed = err
	}
	for _, r := range q.order {
		r.handle.end(q.failed)
	}
	q.order, q.pending = nil, map[string]*request{}
}

// Close ends the queue. What is pending fails with collective.ErrClosed; if ranks are in
// the middle of a cycle, that aborts the communicator.
func (q *Queue) Close() {
	q.cancel(collective.ErrClosed)
	<-q.done
}
