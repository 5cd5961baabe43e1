package exec

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/regroup-io/regroup/collective/internal/control"
)

// opQueue is a lock for the running operation that is granted in the order of the requests. While
// nobody waits for it, it costs two atomic instructions.
type opQueue struct {
	held    atomic.Bool
	waiters atomic.Int32 // len of waiting
	mu      sync.Mutex
	waiting []chan struct{}
}

// lock returns nil if the caller holds the lock now, or a channel that is closed when it does.
func (q *opQueue) lock() (granted chan struct{}) {
	if q.waiters.Load() == 0 && q.held.CompareAndSwap(false, true) {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	granted = make(chan struct{})
	q.waiting = append(q.waiting, granted)
	q.waiters.Add(1)
	q.grant() // it may have become free in between, and then nobody else grants it
	return granted
}

// grant gives a free lock to the first waiter. The caller holds mu.
func (q *opQueue) grant() {
	if len(q.waiting) > 0 && q.held.CompareAndSwap(false, true) {
		close(q.waiting[0])
		q.waiting = slices.Delete(q.waiting, 0, 1)
		q.waiters.Add(-1)
	}
}

func (q *opQueue) unlock() {
	q.held.Store(false)
	if q.waiters.Load() > 0 {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.grant()
	}
}

// cancel withdraws a request.
func (q *opQueue) cancel(granted chan struct{}) {
	q.mu.Lock()
	i := slices.Index(q.waiting, granted)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		q.waiters.Add(-1)
	}
	q.mu.Unlock()
	if i < 0 {
		q.unlock() // it was granted in the same moment
	}
}

// Acquire waits until all operations that were called before are over. The caller may then run
// operations until Release.
func (e *Engine) Acquire(ctx context.Context) error {
	s := e.session
	if err := s.Usable(); err != nil {
		return err
	}
	if granted := e.queue.lock(); granted != nil {
		select {
		case <-granted:
		case <-ctx.Done():
			e.queue.cancel(granted)
			return context.Cause(ctx)
		case <-s.Context().Done():
			e.queue.cancel(granted)
			return s.Ended()
		}
	}
	if ctx.Err() != nil {
		e.queue.unlock()
		return context.Cause(ctx)
	}
	// BeginWait before Usable: a closing session fails Usable first and checks Busy then, so that
	// one of the two sees the other.
	s.BeginWait()
	if err := s.Usable(); err != nil {
		e.Release()
		return err
	}
	return nil
}

// Release lets the next operation begin.
func (e *Engine) Release() {
	e.session.EndWait()
	e.queue.unlock()
}

// shortOp is the size up to which an operation is usually over before a watch of its context would
// be set up.
const shortOp = 16 << 10

// opContext aborts the session when the context of the running operation ends. Short operations are
// watched only from the moment in which they sleep.
type opContext struct {
	session *control.Session
	ctx     context.Context //nolint:containedctx // of the running operation
	stop    func() bool     // nil = not watched
}

func (o *opContext) begin(ctx context.Context, bytes int) {
	o.ctx = ctx
	if bytes > shortOp {
		o.watch()
	}
}

func (o *opContext) watch() {
	if o.stop == nil {
		o.stop = o.session.AbortOnDone(o.ctx)
	}
}

func (o *opContext) end() {
	if o.stop != nil {
		o.stop()
	}
	o.stop, o.ctx = nil, nil
}
