package tcpstore

// push puts an item at the end of a queue.
func (s *store) push(key string, data []byte) ([]*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.budget.newValue(data)
	if err != nil {
		return nil, err
	}
	items := s.queues[key]
	if items == nil {
		if err := s.budget.take(int64(len(key))); err != nil {
			v.release(&s.budget)
			return nil, err
		}
	}
	s.queues[key] = append(items, v)
	return s.wakeOne(key), nil
}

// pop takes the first item of a queue, and returns the length before; nil if the queue is empty.
// The caller releases the item.
func (s *store) pop(key string) (*value, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := s.queues[key]
	if len(items) == 0 {
		return nil, 0
	}
	first := items[0]
	items[0] = nil
	if len(items) == 1 {
		delete(s.queues, key)
		s.budget.give(int64(len(key)))
	} else {
		s.queues[key] = items[1:]
	}
	return first, len(items)
}

func (s *store) queueLen(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queues[key])
}
