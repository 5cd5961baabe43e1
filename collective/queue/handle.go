package queue

import (
	"context"
	"sync"
	"time"
)

// Handle is a submitted operation.
type Handle struct {
	q    *Queue
	done chan struct{}

	mu    sync.Mutex
	over  bool
	err   error
	after func(error)

	// Of operations whose result has a length of its own, after done: the result, and of each
	// rank how many rows it gave.
	result []byte
	rows   []int
	// Of a join, after done: the rank that joined last.
	last int
}

func newHandle(q *Queue) *Handle { return &Handle{q: q, done: make(chan struct{})} }

// Done is closed when the operation is over.
func (h *Handle) Done() <-chan struct{} { return h.done }

// Then has f called with the operation's error when it is over, on a goroutine that must not
// be kept waiting; at once if it is over already. It is called once per handle at most.
func (h *Handle) Then(f func(error)) {
	h.mu.Lock()
	if !h.over {
		h.after = f
		h.mu.Unlock()
		return
	}
	h.mu.Unlock()
	f(h.err)
}

// Wait returns the operation's error when it is over, or that of ctx. For an operation of Queue.Waited, ctx ends nothing.
func (h *Handle) Wait(ctx context.Context) error {
	if h.q.waits {
		h.q.lead(h)
		return h.err
	}
	defer h.Waiting(false)()
	select {
	case <-h.done:
		return h.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Waiting says that a thread waits for the operation until the result is called: it need not
// be held back for others to join it. If that is the thread on which the rank's program
// runs, nothing new comes from the rank unless the operation ends, which is how deadlocks are
// found. A wait may be left and taken up again soon, as who polls does.
func (h *Handle) Waiting(program bool) (end func()) {
	q := h.q
	select {
	case q.hurry <- struct{}{}:
	default:
	}
	if !program {
		return func() {}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.blocked.on != h {
		q.blocked = block{on: h, since: time.Now()}
	}
	q.blocked.waiting = true
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.blocked.on == h {
			q.blocked.waiting, q.blocked.left = false, time.Now()
		}
	}
}

// Result is what an Allgather or Alltoall has brought, after the end of it: the rows, in the
// order of the ranks, and how many came from each rank.
func (h *Handle) Result() (data []byte, rows []int) { return h.result, h.rows }

// Last is the rank that joined last, after the end of a Join.
func (h *Handle) Last() int { return h.last }

func (h *Handle) end(err error) {
	h.mu.Lock()
	h.err, h.over = err, true
	after := h.after
	h.mu.Unlock()
	close(h.done)
	if after != nil {
		after(err)
	}
}

// block is what the rank's program waits for.
type block struct {
	on      *Handle // nil = nothing
	since   time.Time
	waiting bool
	left    time.Time // when it stopped waiting
}

// leftFor is how long a wait may be interrupted, to look for signals, and still count as one.
const leftFor = time.Second

// stuck tells whether the program has waited for longer than patience for something that is
// pending, and submitted nothing since. The caller holds q.mu.
func (q *Queue) stuck(patience time.Duration) bool {
	b := q.blocked
	if b.on == nil || patience <= 0 || !b.waiting && time.Since(b.left) > leftFor {
		return false
	}
	since := b.since
	if q.submitted.After(since) {
		since = q.submitted
	}
	if time.Since(since) < patience {
		return false
	}
	for _, r := range q.order {
		if r.handle == b.on {
			return true
		}
	}
	return q.join != nil && q.join == b.on
}
