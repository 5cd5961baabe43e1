//go:build cgo

package main

import (
	"sync"
	"sync/atomic"
)

// handles are unique over all tables, so that a handle of one kind is never taken for another.
var handles atomic.Uint64

// table finds what a handle stands for.
type table[T any] struct{ m sync.Map }

func (t *table[T]) add(v T) uint64 {
	h := handles.Add(1)
	t.m.Store(h, v)
	return h
}

func (t *table[T]) get(h uint64) (v T, ok bool) {
	x, ok := t.m.Load(h)
	if ok {
		v = x.(T)
	}
	return v, ok
}

// take removes the handle; of several callers one gets what it stood for.
func (t *table[T]) take(h uint64) (v T, ok bool) {
	x, ok := t.m.LoadAndDelete(h)
	if ok {
		v = x.(T)
	}
	return v, ok
}
