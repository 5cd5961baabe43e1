package tcpstore

import (
	"slices"
	"sync/atomic"
)

// A connection waits for keys: at most once at a time, and it is in the list of each key that is
// missing. Whatever creates a key takes its list away and counts the waiters down; at zero a waiter
// is fired, and once the store's lock is released, the connection is notified.
//
//	idle ── WAIT, BARRIER ──► parked ── last key ──► fired ── 0 is written ──► idle
//	  ▲                         │                      │
//	  └───── next request ──────┴──────────────────────┘
//
// A fired waiter whose next request comes before the 0 is written (its wait timed out) gets none.

const (
	idle int32 = iota
	parked
	fired
)

// queue is who waits for one key, first come first. A wait that was cancelled stays in it until
// half of the queue is such, so that nothing has to look for it among thousands of others.
type queue struct {
	places    []place
	cancelled int // of the places, at most
}

// place is one wait of a waiter.
type place struct {
	*waiter
	wait uint64
}

func (p place) over() bool { return p.wait != p.waiter.wait }

// waiter is the waiting part of a connection. The store's lock guards all but its state, which
// leaves fired under the lock of the connection's notifications.
type waiter struct {
	state   atomic.Int32
	wait    uint64 // number of the present wait
	keys    []string
	missing int // of the keys
	cost    int64
	conn    *conn
}

// placeCost is what waiting for a key costs beside the bytes of the key.
const placeCost = 192

// park makes w wait for keys; the caller holds the lock. A key that occurs twice is counted twice.
func (s *store) park(w *waiter, keys []string) error {
	cost := int64(0)
	for _, k := range keys {
		cost += placeCost + int64(len(k))
	}
	if err := s.budget.take(cost); err != nil {
		return err
	}
	w.cost, w.keys, w.missing = cost, keys, len(keys)
	for _, k := range keys {
		q := s.waiting[k]
		if q == nil {
			q = &queue{}
			s.waiting[k] = q
		}
		q.places = append(q.places, place{w, w.wait})
	}
	w.state.Store(parked)
	return nil
}

// wake counts down all who wait for a key, and returns who is fired.
func (s *store) wake(key string) (fired []*waiter) {
	for s.waiting[key] != nil {
		fired = append(fired, s.wakeOne(key)...)
	}
	return fired
}

// wakeOne counts down, first come first, until one is fired: an item of a queue is for one client.
func (s *store) wakeOne(key string) []*waiter {
	q := s.waiting[key]
	for q != nil && len(q.places) > 0 {
		p := q.places[0]
		q.places = q.places[1:]
		if p.over() {
			continue
		}
		if p.missing--; p.missing == 0 {
			s.tidy(key, q)
			s.unpark(p.waiter, fired)
			return []*waiter{p.waiter}
		}
	}
	delete(s.waiting, key)
	return nil
}

// tidy removes cancelled waits once they are half of a queue, and the queue if nothing is left.
func (s *store) tidy(key string, q *queue) {
	if 2*q.cancelled >= len(q.places) {
		q.places, q.cancelled = slices.DeleteFunc(q.places, place.over), 0
	}
	if len(q.places) == 0 {
		delete(s.waiting, key)
	}
}

func (s *store) unpark(w *waiter, state int32) {
	s.budget.give(w.cost)
	w.cost, w.keys = 0, nil
	w.state.Store(state)
}

// cancel ends a wait, if it is not fired already.
func (s *store) cancel(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.state.Load() != parked {
		return
	}
	w.wait++
	for _, k := range w.keys {
		if q := s.waiting[k]; q != nil { // nil = the key came, and others have not
			q.cancelled++
			s.tidy(k, q)
		}
	}
	s.unpark(w, idle)
}

// notify tells fired waiters that their wait is over; the caller does not hold the store's lock.
func notify(fired []*waiter) {
	for _, w := range fired {
		w.conn.notify()
	}
}
