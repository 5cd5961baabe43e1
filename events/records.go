package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"hash/maphash"
	"slices"
)

// Record is a judge's document as anyone may read it.
type Record[V any] struct {
	Key  string
	View V
	// Number is the last fact of each family that the view accounts for. It orders what is made up from the view among the
	// facts themselves: a view that was read before a fact came must not undo it.
	Number map[Family]uint64
}

// errListed ends a watch once everything present was seen.
var errListed = errors.New("listed")

// Records reads every document in a bucket, by key. One that this version cannot read is passed over: its judge complains
// about it, and its facts come all the same.
func Records[V any](ctx context.Context, b Bucket) ([]Record[V], error) {
	return (&Reader[V]{Bucket: b}).Records(ctx)
}

// Reader is for who reads a bucket again and again: it decodes only what has changed since. One goroutine at a time may use it, and
// what it returns must not be modified.
type Reader[V any] struct {
	Bucket Bucket
	known  map[string]read[V]
}

type read[V any] struct {
	sum    uint64 // of the stored document; revisions come again on a broker that was given an old copy of its store
	record Record[V]
	err    error
}

var sumSeed = maphash.MakeSeed()

// Records is as the function of that name.
func (r *Reader[V]) Records(ctx context.Context) ([]Record[V], error) {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all []Record[V]
	now := map[string]read[V]{}
	err := r.Bucket.Watch(inner, func(key string, value []byte, _ uint64) {
		if value == nil || inner.Err() != nil {
			return
		}
		sum := maphash.Bytes(sumSeed, value)
		k, known := r.known[key]
		if !known || k.sum != sum {
			d, v, err := decodeView[V](value)
			k = read[V]{sum, Record[V]{Key: key, View: v, Number: d.Number}, err}
		}
		now[key] = k
		if k.err == nil {
			all = append(all, k.record)
		}
	}, func() { cancel(errListed) })
	if !errors.Is(context.Cause(inner), errListed) {
		return nil, err
	}
	r.known = now
	slices.SortFunc(all, func(x, y Record[V]) int { return cmp.Compare(x.Key, y.Key) })
	return all, nil
}

// DecodeView reads the public view out of a stored document.
func DecodeView[V any](stored []byte) (V, error) {
	_, v, err := decodeView[V](stored)
	return v, err
}

func decodeView[V any](stored []byte) (Document, V, error) {
	var s struct {
		View V `json:"view"`
	}
	d, err := DecodeDocument(stored)
	if err != nil {
		return d, s.View, err
	}
	if err := json.Unmarshal(d.State, &s); err != nil {
		return d, s.View, Errorf(Invalid, "decode view: %w", err)
	}
	return d, s.View, nil
}
