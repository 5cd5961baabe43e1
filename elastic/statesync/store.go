package statesync

import (
	"context"
	"sync"
)

// CommitStore keeps the newest commit of a worker, so that others can read it while the worker
// trains on. A commit that is pinned is not overwritten: the trainer uses another buffer and never
// waits for a reader.
type CommitStore struct {
	mu       sync.Mutex
	newest   *Snapshot
	previous *Snapshot // the commit before newest; nil unless two are kept
	two      bool      // keep two commits
	final    bool      // newest is the last commit of its generation
	// held may turn out to be right, and verified has; both are kept until others take their place.
	held, verified *Snapshot

	pins    map[*Snapshot]int
	free    []*Snapshot
	changed chan struct{} // closed and replaced when newest or final change
}

// put makes s the newest commit, and frees the one before as soon as it is not pinned.
func (c *CommitStore) put(s *Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.newest; old != nil && old != s {
		if c.two {
			old, c.previous = c.previous, old
		}
		if old != nil && old != s {
			c.release(old)
		}
	}
	c.newest, c.final = s, false
	c.notify()
}

// keepTwo makes the store keep the commit before the newest one too, from now on.
func (c *CommitStore) keepTwo() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.two = true
}

// commits returns the commits that are kept, the newest first.
func (c *CommitStore) commits() (all []*Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range []*Snapshot{c.newest, c.previous} {
		if s != nil && !s.tentative {
			all = append(all, s)
		}
	}
	return all
}

// forget makes the commit before the newest one the newest again, or, if it is not kept, the newest
// one an initial state. It returns the newest.
func (c *CommitStore) forget() *Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == c.newest {
		c.held = nil
	}
	if c.previous == nil {
		c.newest.tentative = true
		return c.newest
	}
	old := c.newest
	c.newest, c.previous = c.previous, nil
	c.release(old)
	c.notify()
	return c.newest
}

// EndGeneration marks the newest commit as the last one of its generation.
func (c *CommitStore) EndGeneration() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.final = true
	c.notify()
}

func (c *CommitStore) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// reserve is how many buffers are kept for reuse, so that the trainer does not have to allocate:
// one, a second one while anything is pinned, and one while commits are held.
func (c *CommitStore) reserve() int {
	n := 1
	if len(c.pins) > 0 {
		n++
	}
	if c.held != nil || c.verified != nil {
		n++
	}
	return n
}

// release keeps an unpinned buffer for reuse.
func (c *CommitStore) release(s *Snapshot) {
	if c.pins[s] > 0 || s == c.held || s == c.verified {
		return
	}
	if len(c.free) < c.reserve() {
		c.free = append(c.free, s)
	}
}

// take returns a buffer for the next commit, or nil if there is none.
func (c *CommitStore) take() *Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.free)
	if n == 0 {
		return nil
	}
	s := c.free[n-1]
	c.free = c.free[:n-1]
	return s
}

// pin returns the newest commit, or an older one that is pinned already, so that newcomers keep at
// most two older commits and a checkpoint one. It returns nil if there is no commit. With final it
// waits for the last commit of the generation.
func (c *CommitStore) pin(ctx context.Context, final bool) (s *Snapshot, unpin func()) {
	for {
		c.mu.Lock()
		if s = c.choose(final); s != nil || !final {
			break
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil
		}
	}
	defer c.mu.Unlock()
	if s == nil {
		return nil, nil
	}
	c.pins[s]++
	return s, func() { c.unpin(s) }
}

// PinNewest returns the newest commit, or nil if there is none.
func (c *CommitStore) PinNewest() (s *Snapshot, unpin func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s = c.newest
	if s == nil || s.tentative {
		return nil, nil
	}
	c.pins[s]++
	return s, func() { c.unpin(s) }
}

func (c *CommitStore) choose(final bool) *Snapshot {
	switch {
	case c.newest == nil || c.newest.tentative:
		return nil
	case final && !c.final:
		return nil
	case !final && c.pins[c.newest] == 0:
		for s := range c.pins { // pinned for another newcomer or for a checkpoint
			if s != c.newest {
				return s
			}
		}
	}
	return c.newest
}

func (c *CommitStore) unpin(s *Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pins[s]--; c.pins[s] > 0 {
		return
	}
	delete(c.pins, s)
	if s != c.newest && s != c.previous {
		c.release(s)
	}
	c.free = c.free[:min(len(c.free), c.reserve())]
}

// Reserve allocates the buffer that the trainer will need for its next commit while s is pinned.
func (c *CommitStore) Reserve(s *Snapshot) {
	c.mu.Lock()
	enough := len(c.free) > 1
	c.mu.Unlock()
	if enough {
		return
	}
	n := newSnapshot(len(s.data))
	n.preallocate()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.free) < 2 {
		c.free = append(c.free, n)
	}
}

// setVersion gives a snapshot the version that all members know it by.
func (c *CommitStore) setVersion(s *Snapshot, generation, step uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.generation, s.step, s.tentative = generation, step, false
}

// Version returns the generation and the step of a snapshot whose version a sync may be changing.
func (c *CommitStore) Version(s *Snapshot) (generation, step uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.generation, s.step
}
