package feed

import (
	"slices"
	"sort"
	"sync"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// Item is one entry of a ring.
type Item struct {
	Sequence uint64
	Kind     string // name of the server-sent event: fact, change, progress, line
	Job      ident.JobID
	Data     []byte // JSON, which must not be modified
	Event    events.Event
}

// Ring keeps the newest items. Readers hold a position and no memory of their own, so that
// thousands of them cost little.
type Ring struct {
	mu      sync.Mutex
	items   []Item
	before  uint64 // the newest sequence that is not here and was not replaced; valid with items
	most    int
	bytes   int
	size    int
	changed chan struct{}
}

// NewRing returns a ring of at most so many items with so many bytes of data together.
func NewRing(most, bytes int) *Ring {
	return &Ring{most: most, bytes: bytes, changed: make(chan struct{})}
}

// Add appends an item and wakes the readers. A sequence of 0 becomes the next number.
func (r *Ring) Add(i Item) { r.Replace(0, i) }

// Replace is Add, and removes the item with an earlier sequence if it is still there.
func (r *Ring) Replace(earlier uint64, i Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	empty := len(r.items) == 0
	if at := r.search(earlier); earlier > 0 && at < len(r.items) && r.items[at].Sequence == earlier {
		r.size -= len(r.items[at].Data)
		r.items = slices.Delete(r.items, at, at+1)
	}
	if i.Sequence == 0 {
		i.Sequence = r.last() + 1
	}
	if empty {
		r.before = i.Sequence - 1
	}
	r.items = append(r.items, i)
	r.size += len(i.Data)
	drop := 0
	for drop < len(r.items)-1 && (len(r.items)-drop > r.most || r.size > r.bytes) {
		r.size -= len(r.items[drop].Data)
		drop++
	}
	if drop > 0 {
		r.before = r.items[drop-1].Sequence
		clear(r.items[:drop])
		r.items = r.items[drop:]
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// search returns the index of the first item with a sequence or a later one.
func (r *Ring) search(sequence uint64) int {
	return sort.Search(len(r.items), func(i int) bool { return r.items[i].Sequence >= sequence })
}

func (r *Ring) last() uint64 {
	if len(r.items) == 0 {
		return 0
	}
	return r.items[len(r.items)-1].Sequence
}

// Last returns the sequence of the newest item; 0 = there is none.
func (r *Ring) Last() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last()
}

// First returns the sequence from which nothing is missing but what was replaced; 0 = there is no
// item.
func (r *Ring) First() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.items) == 0 {
		return 0
	}
	return r.before + 1
}

// After returns at most so many items after a sequence, and a channel that is closed when there is
// another one, perhaps already.
func (r *Ring) After(sequence uint64, most int) ([]Item, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.search(sequence + 1)
	found := append([]Item(nil), r.items[at:min(len(r.items), at+most)]...)
	if at+most < len(r.items) {
		more := make(chan struct{})
		close(more)
		return found, more
	}
	return found, r.changed
}

// Back returns the sequence after which the newest so many items come.
func (r *Ring) Back(n int) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case n <= 0:
		return r.last()
	case n >= len(r.items):
		return 0
	}
	return r.items[len(r.items)-n-1].Sequence
}
