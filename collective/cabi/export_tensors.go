//go:build cgo

package main

// #include <stdint.h>
import "C"

import (
	"math"
	"os"
	"syscall"
	"unsafe"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
)

// Operations on tensors. Those that training waits for are written without a closure, which would
// cost a tenth of a small operation.

//export rgo_allreduce
func rgo_allreduce(h C.uint64_t, data unsafe.Pointer, count C.int64_t, dtype, op C.int32_t, started *C.uint64_t) C.int {
	c, there := communicators.get(uint64(h))
	if !there {
		return answer(invalidf("communicator %d is not open", uint64(h)))
	}
	t, o, err := reductionArgs(data, int64(count), int32(dtype), int32(op))
	if err != nil {
		return answer(err)
	}
	if started == nil && c.ops.Pending() == 0 {
		return answer(c.Allreduce(background, t, o))
	}
	return answer(c.do(c.ops, (*uint64)(started), func() error { return c.Allreduce(background, t, o) }))
}

// startReduction runs or starts an operation on one tensor.
func startReduction(h C.uint64_t, data unsafe.Pointer, count C.int64_t, dtype, op C.int32_t, started *C.uint64_t,
	do func(*communicator, collective.Tensor, collective.Op) error,
) C.int {
	return withHandle(&communicators, "communicator", h, func(c *communicator) error {
		t, o, err := reductionArgs(data, int64(count), int32(dtype), int32(op))
		if err != nil {
			return err
		}
		return c.do(c.ops, (*uint64)(started), func() error { return do(c, t, o) })
	})
}

//export rgo_allreduce_as
func rgo_allreduce_as(h C.uint64_t, wire C.int32_t, data unsafe.Pointer, count C.int64_t, op C.int32_t, started *C.uint64_t) C.int {
	w, err := typeOf(int32(wire))
	if err != nil {
		return answer(err)
	}
	return startReduction(h, data, count, 8, op, started, func(c *communicator, t collective.Tensor, o collective.Op) error {
		return c.AllreduceAs(background, w, t, o)
	})
}

//export rgo_allreduce_named
func rgo_allreduce_named(h C.uint64_t, name *C.char, wire C.int32_t, data unsafe.Pointer, count C.int64_t, dtype, op C.int32_t, started *C.uint64_t) C.int {
	return withHandle(&communicators, "communicator", h, func(c *communicator) error {
		t, o, err := reductionArgs(data, int64(count), int32(dtype), int32(op))
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
	return startReduction(h, data, count, dtype, op, started, func(c *communicator, t collective.Tensor, o collective.Op) error {
		return c.ReduceScatter(background, t, o)
	})
}

//export rgo_reduce
func rgo_reduce(h C.uint64_t, data unsafe.Pointer, count C.int64_t, dtype, op, root C.int32_t, started *C.uint64_t) C.int {
	return startReduction(h, data, count, dtype, op, started, func(c *communicator, t collective.Tensor, o collective.Op) error {
		return c.Reduce(background, t, o, int(root))
	})
}

//export rgo_broadcast
func rgo_broadcast(h C.uint64_t, data unsafe.Pointer, count C.int64_t, dtype, root C.int32_t, started *C.uint64_t) C.int {
	return startReduction(h, data, count, dtype, 0, started, func(c *communicator, t collective.Tensor, _ collective.Op) error {
		return c.Broadcast(background, t, int(root))
	})
}

//export rgo_allgather
func rgo_allgather(h C.uint64_t, send, recv unsafe.Pointer, count C.int64_t, dtype C.int32_t, started *C.uint64_t) C.int {
	return withHandle(&communicators, "communicator", h, func(c *communicator) error {
		mine, err := tensorOf(send, int64(count), int32(dtype))
		if err != nil {
			return err
		}
		all, err := memoryOf(recv, int64(count), mine.Type.Size()*c.World())
		if err != nil {
			return err
		}
		return c.do(c.ops, (*uint64)(started), func() error {
			return c.Allgather(background, mine, collective.Tensor{Type: mine.Type, Data: all})
		})
	})
}

//export rgo_alltoall
func rgo_alltoall(h C.uint64_t, send unsafe.Pointer, sendCounts *C.int64_t, recv unsafe.Pointer, recvCounts *C.int64_t,
	count C.int64_t, dtype C.int32_t, started *C.uint64_t,
) C.int {
	return withHandle(&communicators, "communicator", h, func(c *communicator) error {
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
		return c.do(c.ops, (*uint64)(started), func() error { return c.Alltoall(background, out, in, to, from) })
	})
}

// blocks copies the counts of the ranks' blocks and sums them; nil = count in equal blocks.
func blocks(counts *C.int64_t, count int64, world int) ([]int, int64, error) {
	if counts == nil {
		return nil, count, nil
	}
	n, total := make([]int, world), int64(0)
	for i, c := range unsafe.Slice(counts, world) {
		if c < 0 {
			return nil, 0, invalidf("count %d is %d", i, int64(c))
		}
		if int64(c) > math.MaxInt64-total {
			return nil, 0, invalidf("the counts are together more than there can be")
		}
		n[i] = int(c)
		total += int64(c)
	}
	return n, total, nil
}

//export rgo_barrier
func rgo_barrier(h C.uint64_t, started *C.uint64_t) C.int {
	return withHandle(&communicators, "communicator", h, func(c *communicator) error {
		return c.do(c.ops, (*uint64)(started), func() error { return c.Barrier(background) })
	})
}

// The numbers of regroup.h. They are promised to C programs, so they are independent of the
// engine's.
var (
	types = [...]kernel.Type{
		1: kernel.Int8, 2: kernel.Uint8, 3: kernel.Int16, 4: kernel.Int32, 5: kernel.Int64,
		6: kernel.Float16, 7: kernel.BFloat16, 8: kernel.Float32, 9: kernel.Float64,
	}
	ops = [...]collective.Op{collective.Sum, collective.Average, collective.Product, collective.Min, collective.Max}
)

func typeOf(n int32) (kernel.Type, error) {
	if n < 1 || int(n) >= len(types) {
		return 0, invalidf("type %d is none of RG_INT8 to RG_FLOAT64", n)
	}
	return types[n], nil
}

// wireOf is the type of the elements on the wire; 0 = that of the tensor.
func wireOf(n int32) (kernel.Type, error) {
	if n == 0 {
		return 0, nil
	}
	return typeOf(n)
}

func opOf(n int32) (collective.Op, error) {
	if n < 0 || int(n) >= len(ops) {
		return 0, invalidf("reduction %d is none of RG_SUM to RG_MAX", n)
	}
	return ops[n], nil
}

// byteCount is how many bytes n elements of size bytes each have.
func byteCount(n int64, size int) (int64, error) {
	switch {
	case n < 0:
		return 0, invalidf("a count of %d", n)
	case n > math.MaxInt64/int64(size):
		return 0, invalidf("%d elements of %d bytes are more than there can be", n, size)
	}
	return n * int64(size), nil
}

// checkFrom is from how many bytes the end of a program's memory is looked at: an operation on so
// many takes a thousand times as long as the look.
const checkFrom = 1 << 20

// memoryOf is n elements of size bytes each, owned by the caller. A count that is far too large,
// for which no memory is there, is refused: the operation would read what is not there, after
// hours, or wait for it in vain.
func memoryOf(p unsafe.Pointer, n int64, size int) ([]byte, error) {
	bytes, err := byteCount(n, size)
	switch {
	case err != nil || bytes == 0:
		return nil, err
	case p == nil:
		return nil, invalidf("no memory for %d elements", n)
	case bytes >= checkFrom && !mapped(uintptr(p), uint64(bytes)-1):
		return nil, invalidf("%d elements of %d bytes are more than the program has at %p", n, size, p)
	}
	return unsafe.Slice((*byte)(p), bytes), nil
}

// mapped reports whether there is memory at an offset from an address.
func mapped(at uintptr, offset uint64) bool {
	page := uintptr(os.Getpagesize())
	last := at + uintptr(offset)
	if last < at {
		return false
	}
	var resident byte
	_, _, errno := syscall.Syscall(syscall.SYS_MINCORE, last&^(page-1), page, uintptr(unsafe.Pointer(&resident)))
	return errno != syscall.ENOMEM
}

func tensorOf(p unsafe.Pointer, n int64, dtype int32) (collective.Tensor, error) {
	t, err := typeOf(dtype)
	if err != nil {
		return collective.Tensor{}, err
	}
	data, err := memoryOf(p, n, t.Size())
	return collective.Tensor{Type: t, Data: data}, err
}

func reductionArgs(p unsafe.Pointer, n int64, dtype, op int32) (collective.Tensor, collective.Op, error) {
	t, err := tensorOf(p, n, dtype)
	if err != nil {
		return t, 0, err
	}
	o, err := opOf(op)
	return t, o, err
}
