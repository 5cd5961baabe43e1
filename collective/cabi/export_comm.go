//go:build cgo

package main

// #include <stdint.h>
// #include <stdlib.h>
import "C"

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

func withHandle[T any](t *handleTable[T], kind string, h C.uint64_t, do func(T) error) C.int {
	x, there := t.get(uint64(h))
	if !there {
		return answer(invalidf("%s %d is not open", kind, uint64(h)))
	}
	return answer(do(x))
}

// returnHandle gives the caller a handle of the object that create returns.
func returnHandle[T any](t *handleTable[T], kind string, out *C.uint64_t, create func() (T, error)) error {
	if out == nil {
		return invalidf("nowhere to put the %s", kind)
	}
	x, err := create()
	if err == nil {
		*out = C.uint64_t(t.add(x))
	}
	return err
}

// withText writes the text that describes the object behind a handle to a C buffer.
func withText[T any](t *handleTable[T], kind string, h C.uint64_t, buffer *C.char, size C.size_t, describe func(T) ([]byte, error)) C.int {
	return withHandle(t, kind, h, func(x T) error {
		b, err := describe(x)
		if err != nil {
			return err
		}
		return fill(b, buffer, size)
	})
}

// closeHandle removes a handle and closes the object behind it.
func closeHandle[T any](t *handleTable[T], kind string, h C.uint64_t, end func(T) error) C.int {
	x, there := t.take(uint64(h))
	if !there {
		return answer(invalidf("%s %d is not open", kind, uint64(h)))
	}
	return answer(end(x))
}

//export rgo_endpoint_new
func rgo_endpoint_new(options *C.char, out *C.uint64_t) C.int {
	return answer(returnHandle(&endpoints, "endpoint", out, func() (*endpoint, error) { return newEndpoint(text(options)) }))
}

//export rgo_endpoint_address
func rgo_endpoint_address(h C.uint64_t, buffer *C.char, size C.size_t) C.int {
	return withHandle(&endpoints, "endpoint", h, func(e *endpoint) error { return fill([]byte(e.Addr()), buffer, size) })
}

//export rgo_endpoint_close
func rgo_endpoint_close(h C.uint64_t) C.int {
	return closeHandle(&endpoints, "endpoint", h, (*endpoint).Close)
}

//export rgo_alloc
func rgo_alloc(h C.uint64_t, bytes C.int64_t, out *unsafe.Pointer) C.int {
	return withHandle(&endpoints, "endpoint", h, func(e *endpoint) (err error) {
		if out == nil {
			return invalidf("nowhere to put the memory")
		}
		*out, err = e.alloc(int64(bytes))
		return err
	})
}

//export rgo_free
func rgo_free(h C.uint64_t, memory unsafe.Pointer) C.int {
	return withHandle(&endpoints, "endpoint", h, func(e *endpoint) error { return e.free(memory) })
}

//export rgo_comm_new
func rgo_comm_new(h C.uint64_t, options *C.char, out *C.uint64_t) C.int {
	return withHandle(&endpoints, "endpoint", h, func(e *endpoint) error {
		return returnHandle(&communicators, "communicator", out, func() (*communicator, error) { return e.connect(text(options)) })
	})
}

//export rgo_comm_close
func rgo_comm_close(h C.uint64_t) C.int {
	if s, there := subgroups.take(uint64(h)); there {
		s.close()
		return answer(nil)
	}
	c, there := communicators.get(uint64(h))
	if there && c.borrowed {
		return answer(invalidf("communicator %d belongs to its elastic session", uint64(h)))
	}
	if _, there = communicators.take(uint64(h)); !there {
		return answer(invalidf("communicator %d is not open", uint64(h)))
	}
	if c.parent != nil {
		go c.close() // what was started may end only with the communicator that it belongs to
		return answer(nil)
	}
	c.close()
	return answer(nil)
}

//export rgo_comm_origin
func rgo_comm_origin(h C.uint64_t, origin C.int32_t, out *C.uint64_t) C.int {
	return withHandle(&communicators, "communicator", h, func(c *communicator) error {
		return returnHandle(&communicators, "communicator", out, func() (*communicator, error) { return c.withOrigin(int(origin)) })
	})
}

//export rgo_comm_abort
func rgo_comm_abort(h C.uint64_t, rank C.int32_t, why *C.char) C.int {
	return withHandle(&communicators, "communicator", h, func(c *communicator) error {
		if int(rank) >= c.World() {
			return invalidf("rank %d is not within 0 to %d", int(rank), c.World()-1)
		}
		c.abort(int(rank), text(why))
		return nil
	})
}

//export rgo_comm_failed
func rgo_comm_failed(h C.uint64_t) C.int {
	return withHandle(&communicators, "communicator", h, func(c *communicator) error { return c.Failed() })
}

//export rgo_comm_wait_failed
func rgo_comm_wait_failed(h C.uint64_t, withinMS C.int64_t) C.int {
	return withHandle(&communicators, "communicator", h, func(c *communicator) error {
		return c.waitFailed(milliseconds(int64(withinMS)))
	})
}

//export rgo_comm_describe
func rgo_comm_describe(h C.uint64_t, buffer *C.char, size C.size_t) C.int {
	return withText(&communicators, "communicator", h, buffer, size, (*communicator).describe)
}

//export rgo_segment
func rgo_segment(h C.uint64_t, count C.int64_t, rank C.int32_t, begin, end *C.int64_t) C.int {
	return withHandle(&communicators, "communicator", h, func(c *communicator) error {
		if begin == nil || end == nil || count < 0 || rank < 0 || int(rank) >= c.World() {
			return invalidf("segment of rank %d of %d elements", int(rank), int64(count))
		}
		lo, hi := c.Segment(int(count), int(rank))
		*begin, *end = C.int64_t(lo), C.int64_t(hi)
		return nil
	})
}

//export rgo_allgather_bytes
func rgo_allgather_bytes(h C.uint64_t, send unsafe.Pointer, bytes C.int64_t, all *unsafe.Pointer, sizes *C.int64_t) C.int {
	return withHandle(&communicators, "communicator", h, func(c *communicator) error {
		if all == nil || sizes == nil {
			return invalidf("nowhere to put what is gathered")
		}
		p, err := memoryOf(send, int64(bytes), 1)
		if err != nil {
			return err
		}
		blobs, err := c.gatherBytes(p)
		if err != nil {
			return err
		}
		lens, total := unsafe.Slice(sizes, c.World()), 0
		for i, b := range blobs {
			lens[i] = C.int64_t(len(b))
			total += len(b)
		}
		to := C.malloc(C.size_t(max(total, 1)))
		into := unsafe.Slice((*byte)(to), total)
		for _, b := range blobs {
			into = into[copy(into, b):]
		}
		*all = to
		return nil
	})
}

//export rgo_wait
func rgo_wait(id C.uint64_t, within C.int64_t, program C.int) C.int {
	return withHandle(&requests, "request", id, func(r *request) error {
		return r.waitOn(milliseconds(int64(within)), program != 0)
	})
}

//export rgo_watch
func rgo_watch(id C.uint64_t) C.int {
	return withHandle(&requests, "request", id, (*request).watch)
}

//export rgo_wait_any
func rgo_wait_any(h C.uint64_t, within C.int64_t, id *C.uint64_t, how *C.int32_t) C.int {
	return withHandle(&communicators, "communicator", h, func(c *communicator) error {
		if id == nil || how == nil {
			return invalidf("nowhere to put the request")
		}
		r, err := c.completions.wait(milliseconds(int64(within)))
		if err != nil {
			return err
		}
		*id, *how = C.uint64_t(r.id), answer(r.err) // the text is that of rg_last_error
		return nil
	})
}

// handles are unique over all tables, so that a handle of one kind is never taken for another.
var handles atomic.Uint64

type handleTable[T any] struct{ m sync.Map }

func (t *handleTable[T]) add(v T) uint64 {
	h := handles.Add(1)
	t.m.Store(h, v)
	return h
}

func (t *handleTable[T]) get(h uint64) (v T, ok bool) {
	x, ok := t.m.Load(h)
	v, _ = x.(T)
	return v, ok
}

// take removes the handle. Of several callers one gets the object.
func (t *handleTable[T]) take(h uint64) (v T, ok bool) {
	x, ok := t.m.LoadAndDelete(h)
	v, _ = x.(T)
	return v, ok
}
