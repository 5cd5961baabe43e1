package tcpstore

import "sync/atomic"

// A connection waits for keys: at most once at a time, and each key that is missing has one place
// in the list of that key. Whatever creates a key takes its list away and counts the waiters down;
// at zero a waiter is fired, and once the store's lock is released, the connection is notified.
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

// waiter is the waiting part of a connection. The store's lock guards all but its state, which
// leaves fired under the lock of the connection's notifications.
type waiter struct {
	state   atomic.Int32
	missing int
	places  []place
	one     [1]place // of a wait for one key, which most are
	cost    int64
	conn    *conn
}

// place is a waiter's place in the list of a key.
type place struct {
	waiter     *waiter
	list       *waitList
	prev, next *place
}

// waitList has the waiters for a key, first come first.
type waitList struct {
	key         string
	first, last *place
}

// placeCost is what waiting for a key costs beside the bytes of the key.
const placeCost = 192

func (l *waitList) add(p *place) {
	p.list, p.prev, p.next = l, l.last, nil
	if l.last == nil {
		l.first = p
	} else {
		l.last.next = p
	}
	l.last = p
}

func (l *waitList) remove(p *place) {
	if p.prev == nil {
		l.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		l.last = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.list, p.prev, p.next = nil, nil, nil
}

// park makes w wait for keys; the caller holds the lock. A key that occurs twice is counted twice.
func (s *store) park(w *waiter, keys []string) error {
	cost := int64(0)
	for _, k := range keys {
		cost += placeCost + int64(len(k))
	}
	if err := s.budget.take(cost); err != nil {
		return err
	}
	w.cost, w.missing = cost, len(keys)
	if w.places = w.one[:]; len(keys) > 1 {
		w.places = make([]place, len(keys))
	}
	for i, k := range keys {
		list := s.waiting[k]
		if list == nil {
			list = &waitList{key: k}
			s.waiting[k] = list
		}
		w.places[i].waiter = w
		list.add(&w.places[i])
	}
	w.state.Store(parked)
	return nil
}

// wake counts down all who wait for a key, and returns who is fired.
func (s *store) wake(key string) (fired []*waiter) {
	list := s.waiting[key]
	if list == nil {
		return nil
	}
	delete(s.waiting, key)
	for list.first != nil {
		if w, done := s.countDown(list); done {
			fired = append(fired, w)
		}
	}
	return fired
}

// wakeOne counts down until one is fired: an item of a queue is for one client.
func (s *store) wakeOne(key string) []*waiter {
	list := s.waiting[key]
	if list == nil {
		return nil
	}
	for list.first != nil {
		w, done := s.countDown(list)
		if list.first == nil {
			delete(s.waiting, key)
		}
		if done {
			return []*waiter{w}
		}
	}
	return nil
}

func (s *store) countDown(list *waitList) (w *waiter, done bool) {
	w = list.first.waiter
	list.remove(list.first)
	if w.missing--; w.missing > 0 {
		return w, false
	}
	s.unpark(w, fired)
	return w, true
}

func (s *store) unpark(w *waiter, state int32) {
	s.budget.give(w.cost)
	w.cost, w.places = 0, nil
	w.state.Store(state)
}

// cancel ends a wait, if it is not fired already.
func (s *store) cancel(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.state.Load() != parked {
		return
	}
	for i := range w.places {
		list := w.places[i].list
		if list == nil {
			continue // counted down
		}
		list.remove(&w.places[i])
		if list.first == nil {
			delete(s.waiting, list.key)
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
