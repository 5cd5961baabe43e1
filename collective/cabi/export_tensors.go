package main

// #include <stdint.h>
import "C"

import (
	"unsafe"

	"github.com/regroup-io/regroup/collective"
)

// The operations on tensors. Those that training waits for are written out: what a closure costs is a tenth of the whole
// of a small operation.

//export rgo_allreduce
func rgo_allreduce(h C.uint64_t, data unsafe.Pointer, count C.int64_t, dtype, op C.int32_t, started *C.uint64_t) C.int {
	c, there := communicators.get(uint64(h))
	if !there {
		return answer(invalidf("communicator %d is not open", uint64(h)))
	}
	t, o, err := reduced(data, int64(count), int32(dtype), int32(op))
	if err != nil {
		return answer(err)
	}
	if started == nil && c.line.waiting.Load() == 0 {
		return answer(c.Allreduce(background, t, o))
	}
	return answer(c.do(&c.line, (*uint64)(started), func() error { return c.Allreduce(background, t, o) }))
}

// on starts or carries out an operation on a tensor.
func on(h C.uint64_t, data unsafe.Pointer, count C.int64_t, dtype, op C.int32_t, started *C.uint64_t,
	do func(*communicator, collective.Tensor, collective.Op) error,
) C.int {
	return with(&communicators, "communicator", h, func(c *communicator) error {
		t, o, err := reduced(data, int64(count), int32(dtype), int32(op))
		if err != nil {
			return err
		}
		return c.do(&c.line, (*uint64)(started), func() error { return do(c, t, o) })
	})
}

//export rgo_allreduce_as
func rgo_allreduce_as(h C.uint64_t, wire C.int32_t, data unsafe.Pointer, count C.int64_t, op C.int32_t, started *C.uint64_t) C.int {
	w, err := typeOf(int32(wire))
	if err != nil {
		return answer(err)
	}
	return on(h, data, count, 8, op, started, func(c *communicator, t collective.Tensor, o collective.Op) error {
		return c.AllreduceAs(background, w, t, o)
	})
}

//export rgo_allreduce_named
func rgo_allreduce_named(h C.uint64_t, name *C.char, wire C.int32_t, data unsafe.Pointer, count C.int64_t, dtype, op C.int32_t, started *C.uint64_t) C.int {
	return with(&communicators, "communicator", h, func(c *communicator) error {
		t, o, err := reduced(data, int64(count), int32(dtype), int32(op))
		if err != nil {
			return err
		}
		w, err := wireOf(int32(wire))
		if err != nil {
			return err
		}
		return c.allreduceNamed(text(name), "", w, t, o, (*uint64)(started))
	})
}

//export rgo_reduce_scatter
func rgo_reduce_scatter(h C.uint64_t, data unsafe.Pointer, count C.int64_t, dtype, op C.int32_t, started *C.uint64_t) C.int {
	return on(h, data, count, dtype, op, started, func(c *communicator, t collective.Tensor, o collective.Op) error {
		return c.ReduceScatter(background, t, o)
	})
}

//export rgo_reduce
func rgo_reduce(h C.uint64_t, data unsafe.Pointer, count C.int64_t, dtype, op, root C.int32_t, started *C.uint64_t) C.int {
	return on(h, data, count, dtype, op, started, func(c *communicator, t collective.Tensor, o collective.Op) error {
		return c.Reduce(background, t, o, int(root))
	})
}

//export rgo_broadcast
func rgo_broadcast(h C.uint64_t, data unsafe.Pointer, count C.int64_t, dtype, root C.int32_t, started *C.uint64_t) C.int {
	return on(h, data, count, dtype, 0, started, func(c *communicator, t collective.Tensor, _ collective.Op) error {
		return c.Broadcast(background, t, int(root))
	})
}

//export rgo_allgather
func rgo_allgather(h C.uint64_t, send, recv unsafe.Pointer, count C.int64_t, dtype C.int32_t, started *C.uint64_t) C.int {
	return with(&communicators, "communicator", h, func(c *communicator) error {
		mine, err := tensorOf(send, int64(count), int32(dtype))
		if err != nil {
			return err
		}
		all, err := memory(recv, int64(count), mine.Type.Size()*c.World())
		if err != nil {
			return err
		}
		return c.do(&c.line, (*uint64)(started), func() error {
			return c.Allgather(background, mine, collective.Tensor{Type: mine.Type, Data: all})
		})
	})
}

//export rgo_alltoall
func rgo_alltoall(h C.uint64_t, send unsafe.Pointer, sendCounts *C.int64_t, recv unsafe.Pointer, recvCounts *C.int64_t,
	count C.int64_t, dtype C.int32_t, started *C.uint64_t,
) C.int {
	return with(&communicators, "communicator", h, func(c *communicator) error {
		to, sends, err := blocks(sendCounts, int64(count), c.World())
		if err != nil {
			return err
		}
		from, recvs, err := blocks(recvCounts, int64(count), c.World())
		if err != nil {
			return err
		}
		out, err := tensorOf(send, sends, int32(dtype))
		if err != nil {
			return err
		}
		in, err := tensorOf(recv, recvs, int32(dtype))
		if err != nil {
			return err
		}
		return c.do(&c.line, (*uint64)(started), func() error { return c.Alltoall(background, out, in, to, from) })
	})
}

// blocks copies the elements of the ranks' blocks, and adds them up; nil = count in equal blocks.
func blocks(counts *C.int64_t, count int64, world int) ([]int, int64, error) {
	if counts == nil {
		return nil, count, nil
	}
	n, total := make([]int, world), int64(0)
	for i, c := range unsafe.Slice(counts, world) {
		if c < 0 {
			return nil, 0, invalidf("count %d is %d", i, int64(c))
		}
		n[i] = int(c)
		total += int64(c)
	}
	return n, total, nil
}

//export rgo_barrier
func rgo_barrier(h C.uint64_t, started *C.uint64_t) C.int {
	return with(&communicators, "communicator", h, func(c *communicator) error {
		return c.do(&c.line, (*uint64)(started), func() error { return c.Barrier(background) })
	})
}
