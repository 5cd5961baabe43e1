package main

// #include "regroup.h"
import "C"

import (
	"fmt"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/gpu"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/nccl"
)

//export rgo_gpu_open
func rgo_gpu_open(h C.uint64_t, options *C.char, before C.uint64_t, out *C.uint64_t) C.int {
	return withWorld(h, func(c *communicator) error {
		old, open := lookUp[*gpuEngine](uint64(before))
		if before != 0 && !open {
			return notOpen[*gpuEngine](before)
		}
		err := returnHandle(out, func() (*gpuEngine, error) { return c.openGPU(text(options), old) })
		if err == nil {
			take[*gpuEngine](uint64(before))
		}
		return err
	})
}

// launch starts an operation after the work queued on a stream.
type launch func(on *nccl.Stream) *gpu.Task

// start checks an operation's arguments and starts it on the GPU.
func (g *gpuEngine) start(op *C.rg_op, started *uint64) error {
	begin, kind, err := g.launch(op)
	if err != nil {
		return err
	}
	stream := uintptr(op.stream)
	if op.name == nil {
		return g.do(stream, started, begin)
	}
	return g.doNamed(text(op.name), kind+", "+text(op.detail), stream, op.ordered != 0, started, begin)
}

// launch checks the arguments. kind describes what must be equal on all ranks.
func (g *gpuEngine) launch(op *C.rg_op) (begin launch, kind string, err error) {
	t, err := typeOf(int32(op._type))
	if err != nil {
		return nil, "", err
	}
	recv, err := g.buffer(op.recv, int64(op.count), t.Size()*g.parts(op))
	if err != nil {
		return nil, "", err
	}
	kind = fmt.Sprintf("of %d %v on GPUs", int64(op.count), t)
	switch op.code {
	case C.RG_ALLREDUCE:
		o, wire, err := g.reduction(op, t)
		return func(on *nccl.Stream) *gpu.Task {
			if wire != 0 {
				return g.engine.AllreduceAs(background, on, wire, recv, o)
			}
			return g.engine.Allreduce(background, on, recv, t, o)
		}, fmt.Sprintf("allreduce %s, %v, sent as %d", kind, o, wire), err
	case C.RG_BROADCAST:
		root := int(op.peer)
		return func(on *nccl.Stream) *gpu.Task { return g.engine.Broadcast(background, on, recv, root) },
			fmt.Sprintf("broadcast %s from rank %d", kind, root), nil
	case C.RG_ALLGATHER:
		send, err := g.buffer(op.send, int64(op.count), t.Size())
		return func(on *nccl.Stream) *gpu.Task { return g.engine.Allgather(background, on, send, recv) },
			"allgather " + kind, err
	}
	return nil, "", unknownOperation(op)
}

// parts is how many times count elements the result of an operation has.
func (g *gpuEngine) parts(op *C.rg_op) int {
	if op.code == C.RG_ALLGATHER {
		return g.of.World()
	}
	return 1
}

func (g *gpuEngine) reduction(op *C.rg_op, t kernel.Type) (o collective.Op, wire kernel.Type, err error) {
	if o, err = opOf(int32(op.reduction)); err != nil {
		return o, 0, err
	}
	wire, err = wireOf(int32(op.wire))
	if err == nil && wire != 0 && t != kernel.Float32 {
		err = invalidf("only float32 is sent as something else")
	}
	return o, wire, err
}

//export rgo_gpu_describe
func rgo_gpu_describe(h C.uint64_t, buffer *C.char, size C.size_t) C.int {
	return withText(h, buffer, size, (*gpuEngine).describe)
}

//export rgo_gpu_close
func rgo_gpu_close(h C.uint64_t) C.int {
	return closeHandle(h, (*gpuEngine).close)
}
