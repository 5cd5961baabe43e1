package controller

import (
	"container/heap"
	"time"
)

// wakes are the alarms of all entities: a heap with one timer for it. A changed alarm leaves its old place in the heap,
// which is passed over when it comes up.
type wakes struct {
	heap wakeHeap
	at   map[wakeKey]time.Time
}

type wakeKey struct {
	entity string
	what   alarm
}

// alarm is why an entity is looked at.
type alarm int

const (
	deadline alarm = iota // the machine's
	tell                  // the outbox has waited
	look                  // a long document has been seen and not been read
)

type wake struct {
	at time.Time
	wakeKey
}

// set moves an alarm; zero = none.
func (w *wakes) set(k wakeKey, at time.Time) {
	old, ok := w.at[k]
	switch {
	case at.IsZero():
		delete(w.at, k)
	case ok && old.Equal(at):
	default:
		w.at[k] = at
		heap.Push(&w.heap, wake{at, k})
	}
}

// next says when the next alarm is due.
func (w *wakes) next() (time.Time, bool) {
	for len(w.heap) > 0 {
		top := w.heap[0]
		if at, ok := w.at[top.wakeKey]; ok && at.Equal(top.at) {
			return top.at, true
		}
		heap.Pop(&w.heap)
	}
	return time.Time{}, false
}

// pop takes an alarm that is due.
func (w *wakes) pop(now time.Time) (wakeKey, bool) {
	at, ok := w.next()
	if !ok || at.After(now) {
		return wakeKey{}, false
	}
	top := heap.Pop(&w.heap).(wake)
	delete(w.at, top.wakeKey)
	return top.wakeKey, true
}

type wakeHeap []wake

func (h wakeHeap) Len() int           { return len(h) }
func (h wakeHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h wakeHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *wakeHeap) Push(x any)        { *h = append(*h, x.(wake)) }
func (h *wakeHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
