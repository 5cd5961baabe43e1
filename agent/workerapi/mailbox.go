package workerapi

import (
	"context"
	"slices"
	"sync"

	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// mailbox holds what waits for one worker: joins without an answer, and changes to be polled.
type mailbox struct {
	mu      sync.Mutex
	joins   map[chan joinResult]bool
	changes []workerprotocol.Change
	wake    chan struct{} // closed and replaced when a change arrives
	closed  bool
}

type joinResult struct {
	assignment workerprotocol.Assignment
	refusal    *Refusal
}

// wait registers a join before it is passed on, so that its answer cannot arrive too early.
func (b *mailbox) wait() chan joinResult {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := make(chan joinResult, 1)
	b.joins[c] = true
	return c
}

func (b *mailbox) leave(c chan joinResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.joins, c)
}

func (b *mailbox) answer(r joinResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.joins {
		c <- r // buffered: it gets one answer
		delete(b.joins, c)
	}
}

const maxChanges = 64

func (b *mailbox) push(c workerprotocol.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.changes = append(b.changes, c)
	if len(b.changes) > maxChanges { // a worker that never polls
		b.changes = b.changes[1:]
	}
	close(b.wake)
	b.wake = make(chan struct{})
}

func (b *mailbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	close(b.wake)
	b.wake = make(chan struct{})
}

// next returns a change of a generation: a loss before a plan, and nothing of older generations.
func (b *mailbox) next(ctx context.Context, generation uint64) (workerprotocol.Change, bool) {
	for {
		c, ok, wake := b.take(generation)
		if ok {
			return c, true
		}
		if wake == nil {
			return c, false
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return c, false
		}
	}
}

func (b *mailbox) take(generation uint64) (c workerprotocol.Change, ok bool, wake chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes = slices.DeleteFunc(b.changes, func(c workerprotocol.Change) bool { return c.Generation < generation })
	found := slices.IndexFunc(b.changes, func(c workerprotocol.Change) bool {
		return c.Generation == generation && c.Kind == workerprotocol.ChangeLost
	})
	if found < 0 {
		found = slices.IndexFunc(b.changes, func(c workerprotocol.Change) bool { return c.Generation == generation })
	}
	switch {
	case found >= 0:
		c = b.changes[found]
		b.changes = slices.Delete(b.changes, found, found+1)
		return c, true, nil
	case b.closed:
		return c, false, nil
	}
	return c, false, b.wake
}

// putBack returns a change that could not be delivered.
func (b *mailbox) putBack(c workerprotocol.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes = append([]workerprotocol.Change{c}, b.changes...)
}
