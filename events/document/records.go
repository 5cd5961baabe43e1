package document

import (
	"context"
	"encoding/json"
	"errors"
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
)

// Record is a service's document with its public view.
type Record[V any] struct {
	Key  string
	View V
	// Number is the last fact of each family that the view accounts for. It orders inputs made from
	// the view among the facts: a view that was read before a fact arrived must not undo it.
	Number map[events.Family]uint64
}

var errListed = errors.New("listed")

// All reads every document in a bucket, by key. It skips documents that this version cannot read:
// their service reports them, and their facts arrive anyway.
func All[V any](ctx context.Context, b broker.Bucket) ([]Record[V], error) {
	return (&Reader[V]{Bucket: b}).Records(ctx)
}

// Unreadable returns why each document that Records left out the last time cannot be read, by key.
// While the bucket is followed it returns nil.
func (r *Reader[V]) Unreadable() map[string]error {
	var all map[string]error
	for key, k := range r.known {
		if k.err != nil {
			if all == nil {
				all = map[string]error{}
			}
			all[key] = k.err
		}
	}
	return all
}

// Reader reads a bucket repeatedly and decodes only what has changed since. One goroutine at a time
// may call Records, and must not modify the result.
type Reader[V any] struct {
	Bucket broker.Bucket
	known  map[string]read[V]

	mu       sync.Mutex
	followed map[string]read[V] // nil = the bucket is not followed
}

type read[V any] struct {
	sum    uint64 // of the stored document; revisions may recur on a broker that was restored from an old copy of its store
	value  []byte // as stored, if it is not decoded yet: most are replaced before they are read
	record Record[V]
	err    error
}

func (r read[V]) decoded(key string) read[V] {
	if r.value == nil {
		return r
	}
	d, v, err := decodeView[V](r.value)
	return read[V]{sum: r.sum, record: Record[V]{Key: key, View: v, Number: d.Number}, err: err}
}

var sumSeed = maphash.MakeSeed()

// Follow watches the bucket until ctx ends, so that Records need not read thousands of documents of
// which few have changed.
func (r *Reader[V]) Follow(ctx context.Context) error {
	changed, listed, ended := r.Followed()
	defer ended()
	return r.Bucket.Watch(ctx, func(key string, value []byte, _ uint64) { changed(key, value) }, listed)
}

// Followed is Follow over another's watch of the bucket: changed takes each document, or nil
// for one that was removed, and listed says that all of them have been there once. The bucket
// counts as followed from then on until ended is called.
func (r *Reader[V]) Followed() (changed func(key string, value []byte), listed, ended func()) {
	now := map[string]read[V]{}
	changed = func(key string, value []byte) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if value == nil {
			delete(now, key)
		} else {
			now[key] = read[V]{value: value}
		}
	}
	listed = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.followed = now
	}
	ended = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.followed = nil
	}
	return changed, listed, ended
}

// Records is like All. While the bucket is followed it returns the last known records, even if the
// broker is unavailable.
func (r *Reader[V]) Records(ctx context.Context) ([]Record[V], error) {
	r.mu.Lock()
	if r.followed != nil {
		defer r.mu.Unlock()
		return readable(r.followed), nil
	}
	r.mu.Unlock()
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	now := map[string]read[V]{}
	err := r.Bucket.Watch(inner, func(key string, value []byte, _ uint64) {
		if value == nil || inner.Err() != nil {
			return
		}
		sum := maphash.Bytes(sumSeed, value)
		k, known := r.known[key]
		if !known || k.sum != sum {
			k = read[V]{sum: sum, value: value}.decoded(key)
		}
		now[key] = k
	}, func() { cancel(errListed) })
	if !errors.Is(context.Cause(inner), errListed) {
		return nil, err
	}
	r.known = now
	return readable(now), nil
}

// Known returns the last known record of a key while the bucket is followed; false if it is not
// followed, or the key not known yet.
func (r *Reader[V]) Known(key string) (Record[V], bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, ok := r.followed[key]
	if !ok {
		return k.record, false
	}
	k = k.decoded(key)
	r.followed[key] = k
	return k.record, k.err == nil
}

// readable returns the records that this version can read, by key.
func readable[V any](of map[string]read[V]) []Record[V] {
	var all []Record[V]
	for _, key := range slices.Sorted(maps.Keys(of)) {
		k := of[key]
		if k.value != nil {
			k = k.decoded(key)
			of[key] = k
		}
		if k.err == nil {
			all = append(all, k.record)
		}
	}
	return all
}

// View decodes the public view of a stored document.
func View[V any](stored []byte) (V, error) {
	_, v, err := decodeView[V](stored)
	return v, err
}

// ViewUpTo is View, with the number of the last fact of each family that the view shows.
func ViewUpTo[V any](stored []byte) (V, map[events.Family]uint64, error) {
	d, v, err := decodeView[V](stored)
	return v, d.Number, err
}

func decodeView[V any](stored []byte) (Document, V, error) {
	var s struct {
		View V `json:"view"`
	}
	d, err := Decode(stored)
	if err != nil {
		return d, s.View, err
	}
	if err := json.Unmarshal(d.State, &s); err != nil {
		return d, s.View, errcode.Errorf(errcode.Invalid, "decode view: %w", err)
	}
	return d, s.View, nil
}
