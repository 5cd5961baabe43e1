package elastic

import (
	"context"
	"sync"
)

// shelf is where a worker's newest commit lies, so that newcomers can read it while the worker trains on. A commit that
// is being read is not written over: the trainer takes another buffer, and never waits for a reader.
type shelf struct {
	mu      sync.Mutex
	held    *snapshot
	last    bool // the generation of this worker is over, or ends with held
	pins    map[*snapshot]int
	free    []*snapshot
	changed chan struct{} // closed and replaced when held or last change
}

func newShelf() *shelf { return &shelf{pins: map[*snapshot]int{}, changed: make(chan struct{})} }

// put makes n the newest commit. The one before is free again, now or when its last reader is through.
func (h *shelf) put(n *snapshot, last bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if old := h.held; old != nil && old != n {
		h.release(old)
	}
	h.held, h.last = n, last
	h.wake()
}

// end says that what is held is what this worker brings to the next generation.
func (h *shelf) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = true
	h.wake()
}

func (h *shelf) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// release keeps a buffer for later if nobody reads it: one, and while there are readers another, because the trainer must
// not have to make it.
func (h *shelf) release(s *snapshot) {
	if h.pins[s] > 0 {
		return
	}
	keep := 1
	if len(h.pins) > 0 {
		keep = 2
	}
	if len(h.free) < keep {
		h.free = append(h.free, s)
	}
}

// take returns a buffer to write the next commit into; nil = make one.
func (h *shelf) take() *snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.free)
	if n == 0 {
		return nil
	}
	s := h.free[n-1]
	h.free = h.free[:n-1]
	return s
}

// pin returns the newest commit, or one that is read already if that will do: so at most two older ones are kept for
// newcomers, and one for a checkpoint. It is nil if there is none. With last it waits until the commit is the last one of its generation.
func (h *shelf) pin(ctx context.Context, last bool) (s *snapshot, unpin func()) {
	for {
		h.mu.Lock()
		if s = h.choose(last); s != nil || !last {
			break
		}
		changed := h.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil
		}
	}
	defer h.mu.Unlock()
	if s == nil {
		return nil, nil
	}
	h.pins[s]++
	return s, func() { h.unpin(s) }
}

// pinHeld returns the newest commit and no older one; nil if there is none.
func (h *shelf) pinHeld() (s *snapshot, unpin func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s = h.held
	if s == nil || s.tentative {
		return nil, nil
	}
	h.pins[s]++
	return s, func() { h.unpin(s) }
}

func (h *shelf) choose(last bool) *snapshot {
	switch {
	case h.held == nil || h.held.tentative:
		return nil
	case last && !h.last:
		return nil
	case !last && h.pins[h.held] == 0:
		for s := range h.pins { // one that a newcomer chose, or that is written to disk
			if s != h.held {
				return s
			}
		}
	}
	return h.held
}

func (h *shelf) unpin(s *snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pins[s]--; h.pins[s] > 0 {
		return
	}
	delete(h.pins, s)
	if s != h.held {
		h.release(s)
	}
	if len(h.pins) == 0 && len(h.free) > 1 {
		h.free = h.free[:1]
	}
}

// spare makes the buffer that the trainer will need while s is being read, and its memory resident.
func (h *shelf) spare(s *snapshot) {
	h.mu.Lock()
	enough := len(h.free) > 1
	h.mu.Unlock()
	if enough {
		return
	}
	n := newSnapshot(len(s.data))
	n.touch()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.free) < 2 {
		h.free = append(h.free, n)
	}
}

// agree gives what is held the name under which all members have it.
func (h *shelf) agree(s *snapshot, generation, step uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.generation, s.step, s.tentative = generation, step, false
}

// named returns the name of a snapshot that others may be naming.
func (h *shelf) named(s *snapshot) (generation, step uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return s.generation, s.step
}
