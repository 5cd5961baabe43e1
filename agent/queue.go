package agent

import (
	"sync"

	"github.com/regroup-io/regroup/agent/worker"
)

// inputs is an unbounded FIFO whose put never blocks.
type inputs struct {
	mu    sync.Mutex
	items []worker.Input
	wake  chan struct{} // capacity 1: items were added
}

func (q *inputs) put(in worker.Input) {
	q.mu.Lock()
	q.items = append(q.items, in)
	q.mu.Unlock()
	notify(q.wake)
}

// notify signals on a channel of capacity 1, unless a signal waits there already.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (q *inputs) take() []worker.Input {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = nil
	return items
}

func (q *inputs) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items) == 0
}
