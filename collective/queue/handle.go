package queue

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Handle is a submitted operation.
type Handle struct {
	q    *Queue
	done chan struct{}

	mu    sync.Mutex
	ended bool
	err   error
	after func(error)

	// Of operations whose result has its own length, after done: the result, and the number of rows
	// of each rank.
	result []byte
	rows   []int
	// Of a join, after done: the rank that joined last.
	last int
}

func newHandle(q *Queue) *Handle { return &Handle{q: q, done: make(chan struct{})} }

// Then calls f with the operation's error when it is over, on a goroutine that must not be blocked,
// or at once if it is over already. It may be called once per handle.
func (h *Handle) Then(f func(error)) {
	h.mu.Lock()
	if !h.ended {
		h.after = f
		h.mu.Unlock()
		return
	}
	h.mu.Unlock()
	f(h.err)
}

// Wait returns the operation's error when it is over, or that of ctx. For an operation of
// Queue.Synchronous, ctx has no effect.
func (h *Handle) Wait(ctx context.Context) error {
	if h.q.synchronous {
		h.q.driveCycles(h)
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

// Waiting says that a thread waits for the operation until end is called, so the operation need not
// wait for others to be fused with. If that is the thread on which the rank's program runs, the
// rank submits nothing new unless the operation ends, which is how deadlocks are detected. A wait
// may be interrupted and continued soon, as in polling.
func (h *Handle) Waiting(program bool) (end func()) {
	q := h.q
	select {
	case q.urgent <- struct{}{}:
	default:
	}
	if !program {
		return func() {}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.blocked.on != h {
		q.blocked = programWait{on: h, since: time.Now()}
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

// Result is the result of an Allgather or Alltoall that has ended: the rows, in the order of the
// ranks, and the number of rows of each rank.
func (h *Handle) Result() (data []byte, rows []int) { return h.result, h.rows }

// Last is the rank that joined last, after a Join has ended.
func (h *Handle) Last() int { return h.last }

func (h *Handle) end(err error) {
	h.mu.Lock()
	h.err, h.ended = err, true
	after := h.after
	h.mu.Unlock()
	close(h.done)
	if after != nil {
		after(err)
	}
}

// programWait is what the rank's program waits for.
type programWait struct {
	on      *Handle // nil = nothing
	since   time.Time
	waiting bool
	left    time.Time // when it stopped waiting
}

// maxWaitGap is how long a wait may be interrupted, to look for signals, and still count as one.
const maxWaitGap = time.Second

// programBlocked reports whether the program has waited for longer than limit for something that
// is pending, and has submitted nothing since. The caller holds q.mu.
func (q *Queue) programBlocked(limit time.Duration) bool {
	b := q.blocked
	if b.on == nil || limit <= 0 || !b.waiting && time.Since(b.left) > maxWaitGap {
		return false
	}
	since := b.since
	if q.submitted.After(since) {
		since = q.submitted
	}
	if time.Since(since) < limit {
		return false
	}
	return q.join == b.on || slices.ContainsFunc(q.order, func(r *request) bool { return r.handle == b.on })
}
