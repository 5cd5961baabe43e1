package main

// #include <stdint.h>
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/nccl"
)

//export rgo_gpu_open
func rgo_gpu_open(h C.uint64_t, options *C.char, before C.uint64_t, out *C.uint64_t) C.int {
	return withHandle(&communicators, "communicator", h, func(c *communicator) error {
		old, there := gpus.get(uint64(before))
		if before != 0 && !there {
			return invalidf("GPU %d is not open", uint64(before))
		}
		err := returnHandle(&gpus, "GPU", out, func() (*gpu, error) { return c.openGPU(text(options), old) })
		if err == nil {
			gpus.take(uint64(before))
		}
		return err
	})
}

// launch starts an operation after what is queued on a stream.
type launch func(on *nccl.Stream) *nccl.Task

// allreduce checks the arguments. kind describes what must be equal on all ranks.
func (g *gpu) allreduce(wire C.int32_t, data unsafe.Pointer, count C.int64_t, dtype, op C.int32_t) (begin launch, kind string, err error) {
	t, err := typeOf(int32(dtype))
	if err != nil {
		return nil, "", err
	}
	o, err := opOf(int32(op))
	if err != nil {
		return nil, "", err
	}
	w, err := wireOf(int32(wire))
	if err != nil {
		return nil, "", err
	}
	if w != 0 && t != kernel.Float32 {
		return nil, "", invalidf("only float32 is sent as something else")
	}
	b, err := g.buffer(data, int64(count), t.Size())
	if err != nil {
		return nil, "", err
	}
	return func(on *nccl.Stream) *nccl.Task {
		if w != 0 {
			return g.engine.AllreduceAs(background, on, w, b, o)
		}
		return g.engine.Allreduce(background, on, b, t, o)
	}, fmt.Sprintf("allreduce of %d %v on GPUs, %v, sent as %d", int64(count), t, o, w), nil
}

func (g *gpu) broadcast(data unsafe.Pointer, bytes C.int64_t, root C.int32_t) (begin launch, kind string, err error) {
	b, err := g.buffer(data, int64(bytes), 1)
	if err != nil {
		return nil, "", err
	}
	return func(on *nccl.Stream) *nccl.Task { return g.engine.Broadcast(background, on, b, int(root)) },
		fmt.Sprintf("broadcast of %d bytes on GPUs from rank %d", int64(bytes), int(root)), nil
}

func (g *gpu) allgather(send, recv unsafe.Pointer, bytes C.int64_t) (begin launch, kind string, err error) {
	mine, err := g.buffer(send, int64(bytes), 1)
	if err != nil {
		return nil, "", err
	}
	all, err := g.buffer(recv, int64(bytes), g.of.World())
	if err != nil {
		return nil, "", err
	}
	return func(on *nccl.Stream) *nccl.Task { return g.engine.Allgather(background, on, mine, all) },
		fmt.Sprintf("allgather of %d bytes on GPUs", int64(bytes)), nil
}

// onGPU checks an operation's arguments and starts it.
func onGPU(h C.uint64_t, stream C.uintptr_t, started *C.uint64_t, check func(*gpu) (launch, string, error)) C.int {
	return withHandle(&gpus, "GPU", h, func(g *gpu) error {
		begin, _, err := check(g)
		if err != nil {
			return err
		}
		return g.do(uintptr(stream), (*uint64)(started), begin)
	})
}

// namedOnGPU is onGPU for named operations.
func namedOnGPU(h C.uint64_t, name, detail *C.char, stream C.uintptr_t, ordered C.int32_t, started *C.uint64_t, check func(*gpu) (launch, string, error)) C.int {
	return withHandle(&gpus, "GPU", h, func(g *gpu) error {
		begin, kind, err := check(g)
		if err != nil {
			return err
		}
		if name == nil {
			return invalidf("an operation by name needs a name")
		}
		return g.doNamed(text(name), kind+", "+text(detail), uintptr(stream), ordered != 0, (*uint64)(started), begin)
	})
}

//export rgo_gpu_allreduce
func rgo_gpu_allreduce(h C.uint64_t, wire C.int32_t, data unsafe.Pointer, count C.int64_t, dtype, op C.int32_t, stream C.uintptr_t, started *C.uint64_t) C.int {
	return onGPU(h, stream, started, func(g *gpu) (launch, string, error) { return g.allreduce(wire, data, count, dtype, op) })
}

//export rgo_gpu_broadcast
func rgo_gpu_broadcast(h C.uint64_t, data unsafe.Pointer, bytes C.int64_t, root C.int32_t, stream C.uintptr_t, started *C.uint64_t) C.int {
	return onGPU(h, stream, started, func(g *gpu) (launch, string, error) { return g.broadcast(data, bytes, root) })
}

//export rgo_gpu_allgather
func rgo_gpu_allgather(h C.uint64_t, send, recv unsafe.Pointer, bytes C.int64_t, stream C.uintptr_t, started *C.uint64_t) C.int {
	return onGPU(h, stream, started, func(g *gpu) (launch, string, error) { return g.allgather(send, recv, bytes) })
}

//export rgo_named_gpu_allreduce
func rgo_named_gpu_allreduce(h C.uint64_t, name, detail *C.char, wire C.int32_t, data unsafe.Pointer, count C.int64_t,
	dtype, op C.int32_t, stream C.uintptr_t, ordered C.int32_t, started *C.uint64_t,
) C.int {
	return namedOnGPU(h, name, detail, stream, ordered, started, func(g *gpu) (launch, string, error) {
		return g.allreduce(wire, data, count, dtype, op)
	})
}

//export rgo_named_gpu_broadcast
func rgo_named_gpu_broadcast(h C.uint64_t, name, detail *C.char, data unsafe.Pointer, bytes C.int64_t, root C.int32_t,
	stream C.uintptr_t, ordered C.int32_t, started *C.uint64_t,
) C.int {
	return namedOnGPU(h, name, detail, stream, ordered, started, func(g *gpu) (launch, string, error) {
		return g.broadcast(data, bytes, root)
	})
}

//export rgo_named_gpu_allgather
func rgo_named_gpu_allgather(h C.uint64_t, name, detail *C.char, send, recv unsafe.Pointer, bytes C.int64_t,
	stream C.uintptr_t, ordered C.int32_t, started *C.uint64_t,
) C.int {
	return namedOnGPU(h, name, detail, stream, ordered, started, func(g *gpu) (launch, string, error) {
		return g.allgather(send, recv, bytes)
	})
}

//export rgo_gpu_describe
func rgo_gpu_describe(h C.uint64_t, buffer *C.char, size C.size_t) C.int {
	return withText(&gpus, "GPU", h, buffer, size, (*gpu).describe)
}

//export rgo_gpu_close
func rgo_gpu_close(h C.uint64_t) C.int {
	return closeHandle(&gpus, "GPU", h, (*gpu).close)
}
