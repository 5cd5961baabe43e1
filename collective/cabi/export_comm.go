//go:build cgo

package main

// #include <stdint.h>
// #include <stdlib.h>
import "C"

import "unsafe"

//export rgo_endpoint_new
func rgo_endpoint_new(options *C.char, out *C.uint64_t) C.int {
	return answer(returnHandle(out, func() (*endpoint, error) { return newEndpoint(text(options)) }))
}

//export rgo_endpoint_address
func rgo_endpoint_address(h C.uint64_t, buffer *C.char, size C.size_t) C.int {
	return with(h, func(e *endpoint) error { return fill([]byte(e.Addr()), buffer, size) })
}

//export rgo_endpoint_close
func rgo_endpoint_close(h C.uint64_t) C.int {
	return closeHandle(h, (*endpoint).Close)
}

//export rgo_alloc
func rgo_alloc(h C.uint64_t, bytes C.int64_t, out *unsafe.Pointer) C.int {
	return with(h, func(e *endpoint) (err error) {
		if out == nil {
			return invalidf("nowhere to put the memory")
		}
		*out, err = e.alloc(int64(bytes))
		return err
	})
}

//export rgo_free
func rgo_free(h C.uint64_t, memory unsafe.Pointer) C.int {
	return with(h, func(e *endpoint) error { return e.free(memory) })
}

//export rgo_comm_new
func rgo_comm_new(h C.uint64_t, options *C.char, out *C.uint64_t) C.int {
	return with(h, func(e *endpoint) error {
		return returnHandle(out, func() (*communicator, error) { return e.connect(text(options)) })
	})
}

//export rgo_comm_close
func rgo_comm_close(h C.uint64_t) C.int {
	c, open := lookUp[*communicator](uint64(h))
	if open && c.borrowed {
		return answer(invalidf("communicator %d belongs to its elastic session", uint64(h)))
	}
	return closeHandle(h, func(c *communicator) error {
		if c.parent != nil && c.ranks == nil {
			go c.close() // what was started may end only with the communicator that it belongs to
		} else {
			c.close()
		}
		return nil
	})
}

//export rgo_comm_origin
func rgo_comm_origin(h C.uint64_t, origin C.int32_t, out *C.uint64_t) C.int {
	return withWorld(h, func(c *communicator) error {
		return returnHandle(out, func() (*communicator, error) { return c.withOrigin(int(origin)) })
	})
}

//export rgo_comm_abort
func rgo_comm_abort(h C.uint64_t, rank C.int32_t, why *C.char) C.int {
	return withWorld(h, func(c *communicator) error {
		if int(rank) >= c.World() {
			return invalidf("rank %d is not within 0 to %d", int(rank), c.World()-1)
		}
		c.abort(int(rank), text(why))
		return nil
	})
}

//export rgo_comm_failed
func rgo_comm_failed(h C.uint64_t) C.int {
	return withWorld(h, (*communicator).Failed)
}

//export rgo_comm_wait_failed
func rgo_comm_wait_failed(h C.uint64_t, withinMS C.int64_t) C.int {
	return withWorld(h, func(c *communicator) error {
		return c.waitFailed(milliseconds(int64(withinMS)))
	})
}

//export rgo_comm_describe
func rgo_comm_describe(h C.uint64_t, buffer *C.char, size C.size_t) C.int {
	return withWorld(h, func(c *communicator) error {
		b, err := c.describe()
		if err != nil {
			return err
		}
		return fill(b, buffer, size)
	})
}

//export rgo_segment
func rgo_segment(h C.uint64_t, count C.int64_t, rank C.int32_t, begin, end *C.int64_t) C.int {
	return withWorld(h, func(c *communicator) error {
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
	return withWorld(h, func(c *communicator) error {
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
	return with(id, func(r *request) error {
		return r.waitOn(milliseconds(int64(within)), program != 0)
	})
}

//export rgo_watch
func rgo_watch(id C.uint64_t) C.int {
	return with(id, (*request).watch)
}

//export rgo_wait_any
func rgo_wait_any(h C.uint64_t, within C.int64_t, id *C.uint64_t, how *C.int32_t) C.int {
	return withWorld(h, func(c *communicator) error {
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
