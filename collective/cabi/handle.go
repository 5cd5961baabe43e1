//go:build cgo

package main

// #include <stdint.h>
// #include <stdlib.h>
import "C"

import (
	"sync"
	"sync/atomic"
)

// handles are the objects that the host has handles of. A handle is never used twice, so that one
// of one kind is never taken for another.
var (
	handles    sync.Map
	lastHandle atomic.Uint64
)

func addHandle(x any) uint64 {
	h := lastHandle.Add(1)
	handles.Store(h, x)
	return h
}

func lookUp[T any](h uint64) (x T, ok bool) {
	v, _ := handles.Load(h)
	x, ok = v.(T)
	return x, ok
}

// take removes the handle of an object of this kind. Of several callers one gets the object.
func take[T any](h uint64) (x T, ok bool) {
	if x, ok = lookUp[T](h); ok {
		_, ok = handles.LoadAndDelete(h)
	}
	return x, ok
}

// notOpen is the error of a handle that is not one of this kind.
func notOpen[T any](h C.uint64_t) error { return invalidf("%s %d is not open", kindOf[T](), uint64(h)) }

// kindOf is what error texts call an object.
func kindOf[T any]() string {
	switch any(*new(T)).(type) {
	case *endpoint:
		return "endpoint"
	case *request:
		return "request"
	case *training:
		return "training"
	case *gpuEngine:
		return "GPU"
	}
	return "communicator"
}

// with calls do with the object behind a handle.
func with[T any](h C.uint64_t, do func(T) error) C.int {
	x, open := lookUp[T](uint64(h))
	if !open {
		return answer(notOpen[T](h))
	}
	return answer(do(x))
}

// withWorld is with for a communicator that is no subset, which has operations by name alone.
func withWorld(h C.uint64_t, do func(*communicator) error) C.int {
	return with(h, func(c *communicator) error {
		if c.ranks != nil {
			return notOpen[*communicator](h)
		}
		return do(c)
	})
}

// returnHandle gives the caller a handle of the object that create returns.
func returnHandle[T any](out *C.uint64_t, create func() (T, error)) error {
	if out == nil {
		return invalidf("nowhere to put the %s", kindOf[T]())
	}
	x, err := create()
	if err == nil {
		*out = C.uint64_t(addHandle(x))
	}
	return err
}

// withText writes the text that describes the object behind a handle to a C buffer.
func withText[T any](h C.uint64_t, buffer *C.char, size C.size_t, describe func(T) ([]byte, error)) C.int {
	return with(h, func(x T) error {
		b, err := describe(x)
		if err != nil {
			return err
		}
		return fill(b, buffer, size)
	})
}

// closeHandle removes a handle and closes the object behind it.
func closeHandle[T any](h C.uint64_t, end func(T) error) C.int {
	x, open := take[T](uint64(h))
	if !open {
		return answer(notOpen[T](h))
	}
	return answer(end(x))
}
