//go:build cgo

package main

// #include "regroup.h"
import "C"

import (
	"unsafe"

	"github.com/regroup-io/regroup/collective"
)

// rgo_start carries out or starts the operation that op describes, where the handle says:
//
//	communicator           start       in the order of the calls
//	communicator, by name  startNamed  when all ranks have started that name
//	subset, by name        startNamed
//	GPU, with or without   gpuEngine.start
//
// Without a request the operation has ended when it returns.
//
//export rgo_start
func rgo_start(h C.uint64_t, op *C.rg_op, request *C.uint64_t) C.int {
	started := (*uint64)(request)
	if op == nil || uint64(op.size) < C.sizeof_rg_op {
		return answer(invalidf("no operation, or its size is not that of rg_op, %d bytes", C.sizeof_rg_op))
	}
	c, open := lookUp[*communicator](uint64(h))
	switch named := op.name != nil || op.code == C.RG_JOIN; {
	case !open:
		if g, open := lookUp[*gpuEngine](uint64(h)); open {
			return answer(g.start(op, started))
		}
		return answer(invalidf("communicator or GPU %d is not open", uint64(h)))
	case named:
		return answer(c.startNamed(op, started))
	case c.ranks != nil:
		return answer(invalidf("a subset has operations by name alone"))
	}
	return answer(c.start(op, started))
}

// start carries out or starts an operation without a name on memory of the host. The allreduce that
// training waits for is written without a closure, which would cost a tenth of a small operation.
func (c *communicator) start(op *C.rg_op, started *uint64) error {
	switch {
	case op.code == C.RG_ALLREDUCE && op.wire == 0 && started == nil && c.ops.Pending() == 0:
		t, o, err := reductionOf(op)
		if err != nil {
			return err
		}
		return c.Allreduce(background, t, o)
	case op.code == C.RG_SEND:
		return c.startSend(op, started)
	case op.code == C.RG_RECV:
		return c.startRecv(op, started)
	}
	run, err := c.direct(op)
	if err != nil {
		return err
	}
	return c.do(c.ops, started, run)
}

// direct checks the arguments of an operation without a name, and returns what carries it out.
func (c *communicator) direct(op *C.rg_op) (run func() error, err error) {
	switch op.code {
	case C.RG_ALLREDUCE, C.RG_REDUCE_SCATTER, C.RG_REDUCE:
		return c.directReduction(op)
	case C.RG_BROADCAST:
		t, err := inPlace(op)
		root := int(op.peer)
		return func() error { return c.Broadcast(background, t, root) }, err
	case C.RG_ALLGATHER:
		return c.directAllgather(op)
	case C.RG_ALLTOALL:
		return c.directAlltoall(op)
	case C.RG_BARRIER:
		return func() error { return c.Barrier(background) }, nil
	}
	return nil, unknownOperation(op)
}

func unknownOperation(op *C.rg_op) error {
	return invalidf("operation %d is none of RG_ALLREDUCE to RG_JOIN, or not offered here", int32(op.code))
}

func (c *communicator) directReduction(op *C.rg_op) (run func() error, err error) {
	t, o, err := reductionOf(op)
	if err != nil {
		return nil, err
	}
	wire, err := wireOf(int32(op.wire))
	root := int(op.peer)
	switch {
	case op.code == C.RG_REDUCE_SCATTER:
		run = func() error { return c.ReduceScatter(background, t, o) }
	case op.code == C.RG_REDUCE:
		run = func() error { return c.Reduce(background, t, o, root) }
	case wire != 0:
		run = func() error { return c.AllreduceAs(background, wire, t, o) }
	default:
		run = func() error { return c.Allreduce(background, t, o) }
	}
	return run, err
}

func (c *communicator) directAllgather(op *C.rg_op) (run func() error, err error) {
	mine, err := tensorOf(op.send, int64(op.count), op._type)
	if err != nil {
		return nil, err
	}
	all, err := memoryOf(op.recv, int64(op.count), mine.Type.Size()*c.World())
	return func() error { return c.Allgather(background, mine, collective.Tensor{Type: mine.Type, Data: all}) }, err
}

func (c *communicator) directAlltoall(op *C.rg_op) (run func() error, err error) {
	to, sends, err := blocks(op.send_counts, int64(op.count), c.World())
	if err != nil {
		return nil, err
	}
	from, recvs, err := blocks(op.recv_counts, int64(op.count), c.World())
	if err != nil {
		return nil, err
	}
	out, err := tensorOf(op.send, sends, op._type)
	if err != nil {
		return nil, err
	}
	in, err := tensorOf(op.recv, recvs, op._type)
	return func() error { return c.Alltoall(background, out, in, to, from) }, err
}

// message is the memory of a message to or from another rank.
func (c *communicator) message(op *C.rg_op, data unsafe.Pointer) ([]byte, error) {
	if rank := int(op.peer); rank < 0 || rank >= c.World() || rank == c.Rank() {
		return nil, invalidf("rank %d is not another one of %d ranks", rank, c.World())
	}
	t, err := tensorOf(data, int64(op.count), op._type)
	return t.Data, err
}

func (c *communicator) startSend(op *C.rg_op, started *uint64) error {
	p, err := c.message(op, op.send)
	if err != nil {
		return err
	}
	to, tag := int(op.peer), int64(op.tag)
	return c.do(c.sendQueue(to), started, func() error { return c.messages.Send(to, tag, p) })
}

func (c *communicator) startRecv(op *C.rg_op, started *uint64) error {
	if op.peer < 0 {
		return c.startRecvAny(op, started)
	}
	p, err := c.message(op, op.recv)
	if err != nil {
		return err
	}
	r, err := c.newRequest()
	if err != nil {
		return err
	}
	c.messages.Recv(int(op.peer), int64(op.tag), p, r.end)
	return r.answer(started)
}

func (c *communicator) startRecvAny(op *C.rg_op, started *uint64) error {
	if op.source == nil || c.World() < 2 {
		return invalidf("source is NULL, or there is no other rank")
	}
	t, err := inPlace(op)
	if err != nil {
		return err
	}
	r, err := c.newRequest()
	if err != nil {
		return err
	}
	c.messages.RecvAny(int64(op.tag), t.Data, (*int32)(op.source), r.end)
	return r.answer(started)
}
