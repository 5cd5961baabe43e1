// Package serial runs functions one after the other.
package serial

import (
	"sync"
	"sync/atomic"
)

// Queue runs functions in the order in which they were added, on a goroutine that exists while
// there are any. The zero value is ready to use.
type Queue struct {
	pending atomic.Int64
	runs    sync.WaitGroup

	mu      sync.Mutex
	waiting []task
	running bool
	closed  bool
}

type task struct {
	run  func() error
	done func(error)
}

// Add adds run, and done, which is called with the error of run. It returns false, and neither is
// called, if the queue is closed.
func (q *Queue) Add(run func() error, done func(error)) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.pending.Add(1)
	q.waiting = append(q.waiting, task{run, done})
	if !q.running {
		q.running = true
		q.runs.Go(q.serve)
	}
	return true
}

func (q *Queue) serve() {
	for {
		q.mu.Lock()
		if len(q.waiting) == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		t := q.waiting[0]
		q.waiting[0] = task{} // its memory must not stay reachable from here
		q.waiting = q.waiting[1:]
		q.mu.Unlock()
		err := t.run()
		q.pending.Add(-1) // before done, so that its caller finds an empty queue
		t.done(err)
	}
}

// Pending is the number of functions that have not ended.
func (q *Queue) Pending() int { return int(q.pending.Load()) }

// Close refuses further functions. Wait then waits until the last one has ended.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// Wait returns when the goroutine has ended. The queue must be closed.
func (q *Queue) Wait() { q.runs.Wait() }
