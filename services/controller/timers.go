package controller

import (
	"container/heap"
	"time"
)

// timers holds those of all entities in a heap. A timer that was moved leaves its old entry in the
// heap, which is skipped when it is reached.
type timers struct {
	heap timerHeap
	at   map[timerKey]time.Time
}

type timerKey struct {
	entity string
	kind   timerKind
}

type timerKind int

const (
	deadlineTimer timerKind = iota // the machine's deadline
	publishTimer                   // the outbox is unpublished
	decodeTimer                    // a long document was updated and not decoded
	repairTimer                    // the document cannot be read, or must be compared with the log
)

type timer struct {
	at time.Time
	timerKey
}

// set moves a timer; zero = none.
func (t *timers) set(k timerKey, at time.Time) {
	old, ok := t.at[k]
	switch {
	case at.IsZero():
		delete(t.at, k)
	case ok && old.Equal(at):
	default:
		t.at[k] = at
		heap.Push(&t.heap, timer{at, k})
	}
}

func (t *timers) next() (time.Time, bool) {
	for len(t.heap) > 0 {
		top := t.heap[0]
		if at, ok := t.at[top.timerKey]; ok && at.Equal(top.at) {
			return top.at, true
		}
		heap.Pop(&t.heap)
	}
	return time.Time{}, false
}

func (t *timers) pop(now time.Time) (timerKey, bool) {
	at, ok := t.next()
	if !ok || at.After(now) {
		return timerKey{}, false
	}
	top := heap.Pop(&t.heap).(timer)
	delete(t.at, top.timerKey)
	return top.timerKey, true
}

type timerHeap []timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *timerHeap) Push(x any)        { *h = append(*h, x.(timer)) }
func (h *timerHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
