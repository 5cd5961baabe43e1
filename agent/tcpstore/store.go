package tcpstore

import (
	"bytes"
	"slices"
	"sync"
)

// store is one keyspace. Its methods are the operations; those that can end a wait return who is to
// be notified. Keys are as on the wire: a client puts a slash before the keys that its program
// uses.
type store struct {
	mu      sync.Mutex
	values  map[string]*value
	queues  map[string][]*value // none is empty
	waiting map[string]*queue   // none is empty
	budget  budget
}

func newStore(memory int64) *store {
	return &store{
		values: map[string]*value{}, queues: map[string][]*value{}, waiting: map[string]*queue{},
		budget: budget{max: memory},
	}
}

// put stores data, which belongs to the store from now on; the caller holds the lock.
func (s *store) put(key string, data []byte) error {
	v, err := s.budget.newValue(data)
	if err != nil {
		return err
	}
	if old := s.values[key]; old != nil {
		old.release(&s.budget)
	} else if err := s.budget.take(int64(len(key))); err != nil {
		v.release(&s.budget)
		return err
	}
	s.values[key] = v
	return nil
}

func (s *store) set(key string, data []byte) ([]*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.put(key, data); err != nil {
		return nil, err
	}
	return s.wake(key), nil
}

// compareSet returns the reply: the value that is stored now, but if there is none,
// the value that was expected.
func (s *store) compareSet(key string, expected, desired []byte) (*value, []*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.values[key]
	switch {
	case old != nil && !bytes.Equal(old.data, expected):
		return old.retain(), nil, nil
	case old == nil && len(expected) > 0:
		v, err := s.budget.newValue(expected)
		return v, nil, err
	}
	if err := s.put(key, desired); err != nil {
		return nil, nil, err
	}
	var woken []*waiter
	if old == nil {
		woken = s.wake(key)
	}
	return s.values[key].retain(), woken, nil
}

// get returns nil for keys that are absent. The caller releases the values.
func (s *store) get(keys ...string) []*value {
	values := make([]*value, len(keys))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, k := range keys {
		if v := s.values[k]; v != nil {
			values[i] = v.retain()
		}
	}
	return values
}

func (s *store) getOne(key string) *value { return s.get(key)[0] }

// increment adds to the counter at a key; the caller holds the lock.
func (s *store) increment(key string, delta int64) (n int64, err error) {
	if v := s.values[key]; v != nil {
		if n, err = number(v.data); err != nil {
			return 0, err
		}
	}
	n = sum(n, delta)
	return n, s.put(key, decimal(n))
}

func (s *store) add(key string, delta int64) (int64, []*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.increment(key, delta)
	if err != nil {
		return 0, nil, err
	}
	return n, s.wake(key), nil
}

// present tells whether a key has a value or items of a queue; the caller holds the lock.
func (s *store) present(key string) bool {
	return s.values[key] != nil || len(s.queues[key]) > 0
}

// absent returns those of the keys that are not present, in the same memory; the caller holds the
// lock.
func (s *store) absent(keys []string) []string { return slices.DeleteFunc(keys, s.present) }

func (s *store) check(keys []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.absent(keys)) == 0
}

// wait tells whether all keys are present; if not, w is parked until the missing ones have been
// created, each at any time.
func (s *store) wait(w *waiter, keys []string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	missing := s.absent(keys)
	if len(missing) == 0 {
		return true, nil
	}
	return false, s.park(w, missing)
}

// barrier counts one call, and tells whether it was the last one of size calls; if not, w is
// parked. As in PyTorch, a call that is not the last wakes nobody although it may create the key,
// and any other operation that sets the key wakes all.
func (s *store) barrier(w *waiter, key string, size int64) (bool, []*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.increment(key, 1)
	if err != nil {
		return false, nil, err
	}
	if n >= size {
		return true, s.wake(key), nil
	}
	return false, nil, s.park(w, []string{key})
}

func (s *store) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.values)
}

func (s *store) remove(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.values[key]
	if v == nil {
		return false
	}
	delete(s.values, key)
	s.budget.give(int64(len(key)))
	v.release(&s.budget)
	return true
}

func (s *store) append(key string, data []byte) ([]*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.values[key]
	if v == nil {
		if err := s.put(key, data); err != nil {
			return nil, err
		}
		return s.wake(key), nil
	}
	longer, err := v.append(&s.budget, data)
	if err != nil {
		return nil, err
	}
	s.values[key] = longer
	return s.wake(key), nil
}

// pair is a key and its new value.
type pair struct {
	key  string
	data []byte
}

func (s *store) setAll(pairs []pair) ([]*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var woken []*waiter
	for _, p := range pairs {
		if err := s.put(p.key, p.data); err != nil {
			return woken, err
		}
		woken = append(woken, s.wake(p.key)...)
	}
	return woken, nil
}

// keys returns the keys, and the bytes in them.
func (s *store) keys() (keys []string, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys = make([]string, 0, len(s.values))
	for k := range s.values {
		keys = append(keys, k)
		size += int64(len(k))
	}
	return keys, size
}
