package agent

import (
	"sync"

	"github.com/regroup-io/regroup/agent/worker"
)

// queue is an unbounded FIFO whose put never blocks.
type queue[T any] struct {
	mu    sync.Mutex
	items []T
	wake  chan struct{} // capacity 1: items were added
}

func newQueue[T any]() *queue[T] { return &queue[T]{wake: make(chan struct{}, 1)} }

func (q *queue[T]) put(items ...T) {
	q.mu.Lock()
	q.items = append(q.items, items...)
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

func (q *queue[T]) take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = nil
	return items
}

func (q *queue[T]) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items) == 0
}

type inputs = queue[worker.Input]
