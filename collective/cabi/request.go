//go:build cgo

package main

import (
	"sync"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/queue"
)

// request is an operation that was started and has not been waited for.
type request struct {
	id        uint64
	of        *communicator
	handle    *queue.Handle // of a named operation, else nil
	done      chan struct{}
	err       error // valid after done
	completed bool  // guarded by of.completions.mu, like watched
	watched   bool
}

func (r *request) end(err error) {
	r.err = err
	close(r.done)
	r.of.completions.add(r)
	r.of.started.Done()
}

// watch makes wait_any return r.
func (r *request) watch() error {
	if _, mine := take[*request](r.id); !mine {
		return invalidf("request %d was waited for by another caller", r.id)
	}
	r.of.completions.watch(r)
	return nil
}

// wait returns the error of r when it is complete, and forgets r. It returns errTimeout if r is not
// complete within the time; negative = no limit.
func (r *request) wait(within time.Duration) error { return r.waitOn(within, false) }

// waitOn is wait. program says whether it is called on the program's main thread.
func (r *request) waitOn(within time.Duration, program bool) error {
	if within != 0 {
		if r.handle != nil {
			defer r.handle.Waiting(program)()
		}
		select {
		case <-r.done:
		case <-expiry(within):
		}
	}
	select {
	case <-r.done:
	default:
		return errTimeout
	}
	if _, mine := take[*request](r.id); !mine {
		return invalidf("request %d was waited for by another caller", r.id)
	}
	return r.err
}

// expiry returns a channel that fires after a time; never if it is negative.
func expiry(within time.Duration) <-chan time.Time {
	if within < 0 {
		return nil
	}
	return time.After(within)
}

// completionQueue holds the watched requests that have completed, oldest first.
type completionQueue struct {
	mu     sync.Mutex
	list   []*request
	some   chan struct{} // capacity 1
	closed chan struct{}
}

func newCompletionQueue() *completionQueue {
	return &completionQueue{some: make(chan struct{}, 1), closed: make(chan struct{})}
}

// add adds a request that has completed, if it is watched.
func (q *completionQueue) add(r *request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.completed = true
	q.put(r)
}

// watch watches a request that may have completed.
func (q *completionQueue) watch(r *request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.watched = true
	q.put(r)
}

// put queues a request that has completed and is watched. The caller holds mu.
func (q *completionQueue) put(r *request) {
	if r.completed && r.watched {
		q.list = append(q.list, r)
		q.wake()
	}
}

func (q *completionQueue) wake() {
	select {
	case q.some <- struct{}{}:
	default:
	}
}

func (q *completionQueue) next() *request {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) == 0 {
		return nil
	}
	r := q.list[0]
	q.list[0] = nil
	q.list = q.list[1:]
	if len(q.list) > 0 {
		q.wake() // for another waiter
	}
	return r
}

// wait returns the next request that completes.
func (q *completionQueue) wait(within time.Duration) (*request, error) {
	expired := expiry(within)
	for {
		if r := q.next(); r != nil {
			return r, nil
		}
		select {
		case <-q.some:
		case <-expired:
			return nil, errTimeout
		case <-q.closed:
			if r := q.next(); r != nil {
				return r, nil
			}
			return nil, collective.ErrClosed
		}
	}
}
