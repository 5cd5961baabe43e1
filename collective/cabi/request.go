//go:build cgo

package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/queue"
)

// request is an operation that was started and has not been waited for.
type request struct {
	id      uint64
	of      *communicator
	run     func() error
	handle  *queue.Handle // of an operation by name; nil = it has none
	done    chan struct{}
	err     error // after done
	over    bool  // guarded by of.ended.mu, like watched
	watched bool
}

// requests are those of all communicators.
var requests table[*request]

// line carries requests out one after the other, on a goroutine that lives while there are any.
type line struct {
	mu      sync.Mutex
	queue   []*request
	running bool
	waiting atomic.Int32 // requests that have not ended
}

func (l *line) add(r *request) {
	l.waiting.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, r)
	if !l.running {
		l.running = true
		go l.carryOut()
	}
}

func (l *line) carryOut() {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.running = false
			l.mu.Unlock()
			return
		}
		r := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		l.mu.Unlock()
		err := r.run()
		l.waiting.Add(-1) // before it is told: who has heard of the end may rely on an empty line
		r.end(err)
	}
}

// end tells how a request ended.
func (r *request) end(err error) {
	r.run, r.err = nil, err
	close(r.done)
	r.of.ended.add(r)
	r.of.started.Done()
}

// watch has wait_any tell of the end.
func (r *request) watch() error {
	if _, mine := requests.take(r.id); !mine {
		return invalidf("request %d was waited for by somebody else", r.id)
	}
	r.of.ended.watch(r)
	return nil
}

// wait returns how r ended, and forgets it; errTimeout = it has not. Negative = without end.
func (r *request) wait(within time.Duration) error { return r.waitOn(within, false) }

// waitOn is wait on the thread on which the program runs, or on another one.
func (r *request) waitOn(within time.Duration, program bool) error {
	if within != 0 {
		if r.handle != nil {
			defer r.handle.Waiting(program)()
		}
		expired, stop := expiry(within)
		defer stop()
		select {
		case <-r.done:
		case <-expired:
		}
	}
	select {
	case <-r.done:
	default:
		return errTimeout
	}
	if _, mine := requests.take(r.id); !mine {
		return invalidf("request %d was waited for by somebody else", r.id)
	}
	return r.err
}

// expiry fires after a time; never if it is negative.
func expiry(within time.Duration) (<-chan time.Time, func()) {
	if within < 0 {
		return nil, func() {}
	}
	t := time.NewTimer(within)
	return t.C, func() { t.Stop() }
}

// ended are requests that are watched and have ended, oldest first.
type ended struct {
	mu     sync.Mutex
	list   []*request
	some   chan struct{} // capacity 1
	closed chan struct{}
}

func newEnded() *ended { return &ended{some: make(chan struct{}, 1), closed: make(chan struct{})} }

// add takes a request that has ended, if it is watched.
func (e *ended) add(r *request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.over = true
	if r.watched {
		e.list = append(e.list, r)
		e.wake()
	}
}

// watch takes a request that may have ended.
func (e *ended) watch(r *request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.watched = true
	if r.over {
		e.list = append(e.list, r)
		e.wake()
	}
}

func (e *ended) wake() {
	select {
	case e.some <- struct{}{}:
	default:
	}
}

// next takes the oldest.
func (e *ended) next() *request {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) == 0 {
		return nil
	}
	r := e.list[0]
	e.list[0] = nil
	e.list = e.list[1:]
	if len(e.list) > 0 {
		e.wake() // for somebody else who waits
	}
	return r
}

// wait returns the next request that ends.
func (e *ended) wait(within time.Duration) (*request, error) {
	expired, stop := expiry(within)
	defer stop()
	for {
		if r := e.next(); r != nil {
			return r, nil
		}
		select {
		case <-e.some:
		case <-expired:
			return nil, errTimeout
		case <-e.closed:
			if r := e.next(); r != nil {
				return r, nil
			}
			return nil, collective.ErrClosed
		}
	}
}
