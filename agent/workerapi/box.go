package workerapi

import (
	"context"
	"sync"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
)

// box is what waits for one worker: joins that wait for their answer, and news that wait to be
// fetched.
type box struct {
	mu     sync.Mutex
	joins  map[chan joinResult]bool
	news   []wire.Change
	wake   chan struct{} // closed and replaced when news come
	closed bool
}

type joinResult struct {
	assignment wire.Assignment
	refusal    *Refusal
}

func newBox() *box { return &box{joins: map[chan joinResult]bool{}, wake: make(chan struct{})} }

// wait registers a join before it is handed over, so that its answer cannot come too early.
func (b *box) wait() chan joinResult {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := make(chan joinResult, 1)
	b.joins[c] = true
	return c
}

func (b *box) leave(c chan joinResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.joins, c)
}

func (b *box) answer(r joinResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.joins {
		c <- r // has room: it gets one answer
		delete(b.joins, c)
	}
}

const maxNews = 64

func (b *box) push(c wire.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.news = append(b.news, c)
	if len(b.news) > maxNews { // a worker that never asks
		b.news = b.news[1:]
	}
	close(b.wake)
	b.wake = make(chan struct{})
}

func (b *box) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	close(b.wake)
	b.wake = make(chan struct{})
}

// next returns the news about a generation: a loss before a plan, and nothing of older generations.
func (b *box) next(ctx context.Context, generation uint64) (wire.Change, bool) {
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

func (b *box) take(generation uint64) (c wire.Change, ok bool, wake chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := -1
	var keep []wire.Change
	for _, n := range b.news {
		if n.Generation < generation {
			continue
		}
		keep = append(keep, n)
		if n.Generation == generation && (found < 0 || n.Kind == wire.ChangeLost && keep[found].Kind != wire.ChangeLost) {
			found = len(keep) - 1
		}
	}
	b.news = keep
	if found >= 0 {
		c = keep[found]
		b.news = append(keep[:found:found], keep[found+1:]...)
		return c, true, nil
	}
	if b.closed {
		return c, false, nil
	}
	return c, false, b.wake
}

// putBack returns news that could not be delivered.
func (b *box) putBack(c wire.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.news = append([]wire.Change{c}, b.news...)
}
