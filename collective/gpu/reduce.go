package gpu

import (
	"context"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/nccl"
)

type reduction struct {
	t    kernel.Type
	op   collective.Op
	wire kernel.Type // between nodes; 0 = the type of the elements
}

func (r reduction) narrow() bool { return r.wire != 0 }

// tensor is host memory as a tensor of the communicator.
func (r reduction) tensor(p []byte) collective.Tensor { return collective.Tensor{Type: r.t, Data: p} }

// Allreduce combines b of all ranks in place, with the same bits everywhere.
//
// With one node it is an operation of NCCL. With several, each GPU of a rail gets a part of the
// node's sum and reduces it with its rail peers; then the node gathers the parts.
func (e *Engine) Allreduce(ctx context.Context, on *nccl.Stream, b nccl.Buffer, t kernel.Type, op collective.Op) *Task {
	return e.startReduce(ctx, "Allreduce", on, b, reduction{t: t, op: op}, -1)
}

// AllreduceAs is Allreduce of float32 elements that are sent between nodes as Float16 or
// BFloat16, see Communicator.AllreduceAs for the error. Inside a node nothing is rounded.
func (e *Engine) AllreduceAs(ctx context.Context, on *nccl.Stream, wire kernel.Type, b nccl.Buffer, op collective.Op) *Task {
	if wire != kernel.Float16 && wire != kernel.BFloat16 {
		return failed(invalid("%v on the wire, not float16 or bfloat16", wire))
	}
	return e.startReduce(ctx, "AllreduceAs", on, b, reduction{t: kernel.Float32, op: op, wire: wire}, -1)
}

// Reduce combines b of all ranks at root. On the others it is undefined afterwards. Between nodes
// it sends as much as an Allreduce.
func (e *Engine) Reduce(ctx context.Context, on *nccl.Stream, b nccl.Buffer, t kernel.Type, op collective.Op, root int) *Task {
	if err := e.has(root); err != nil {
		return failed(err)
	}
	return e.startReduce(ctx, "Reduce", on, b, reduction{t: t, op: op}, root)
}

func (e *Engine) startReduce(ctx context.Context, name string, on *nccl.Stream, b nccl.Buffer, r reduction, root int) *Task {
	if err := e.fits(b, r); err != nil {
		return failed(err)
	}
	return e.start(ctx, name, on, func(ctx context.Context) (*nccl.Work, error) { return e.reduce(ctx, b, r, root) })
}

// reduce performs an Allreduce, or a Reduce if root is not -1.
func (e *Engine) reduce(ctx context.Context, b nccl.Buffer, r reduction, root int) (*nccl.Work, error) {
	dtype, known := dataTypes[r.t]
	s := newPartition(b.Bytes()/r.t.Size(), e.at.rails)
	switch {
	case e.at.world() == 1 && e.local == nil:
		return e.settled(ctx)
	case e.withoutNCCL() || !known:
		return nil, e.reduceThroughHost(ctx, b, r)
	case e.at.nodes() == 1 && b.Bytes() == 0:
		return e.settled(ctx)
	case e.at.nodes() == 1 && root < 0:
		return e.launch(ctx, nccl.AllReduce(b, b, dtype, reduceOps[r.op]))
	case e.at.nodes() == 1:
		return e.launch(ctx, nccl.Reduce(b, b, dtype, reduceOps[r.op], root))
	}
	last, err := e.launch(ctx, e.reduceToRails(b, s, dtype, partialOp(r.op))...)
	if err != nil {
		return nil, err
	}
	wanted := true // on this node
	if root >= 0 {
		node, _ := e.at.find(root)
		wanted = node == e.at.node
	}
	if err := e.reduceInterNode(ctx, b, s, r, wanted); err != nil || !wanted {
		return last, err
	}
	return e.launch(ctx, e.broadcastFromRails(b, s, r.t.Size())...)
}

// reduceInterNode reduces this rank's part of a buffer with its rail peers on the other nodes.
func (e *Engine) reduceInterNode(ctx context.Context, b nccl.Buffer, s partition, r reduction, wanted bool) error {
	stage, err := e.res.stage(ctx, 0)
	if err != nil {
		return err
	}
	lo, hi := s.part(e.at.local)
	mine, group := b.Slice(lo*r.t.Size(), hi*r.t.Size()), e.at.railPeers()
	// The communicator requires that all ranks give the same length at a time: a shorter part is
	// followed by whatever is in the slot, and a rank without a rail gives only that.
	length, chunk := s.longest()*r.t.Size(), stage.ChunkBytes()
	return stage.Transfer(ctx, e.res.stream, max(1, chunks(length, chunk)), func(i int) nccl.SlotTransfer {
		t := nccl.SlotTransfer{Down: []nccl.Piece{{Buffer: mine.Chunk(i, chunk)}}}
		if wanted {
			t.Up = t.Down
		}
		return t
	}, func(i int, slot []byte) error {
		n := min(chunk, length-i*chunk)
		op := r.op
		if op == collective.Average {
			op = collective.Sum
		}
		var err error
		if r.narrow() {
			err = e.comm.AllreduceSubgroupAs(context.Background(), r.wire, group, r.tensor(slot[:n]), op)
		} else {
			err = e.comm.AllreduceSubgroup(context.Background(), group, r.tensor(slot[:n]), op)
		}
		if err == nil && r.op == collective.Average {
			kernel.Average(r.t, slot[:mine.Chunk(i, chunk).Bytes()], e.at.world())
		}
		return err
	})
}

// reduceThroughHost reduces a whole buffer with the communicator alone.
func (e *Engine) reduceThroughHost(ctx context.Context, b nccl.Buffer, r reduction) error {
	stage, err := e.res.stage(ctx, 0)
	if err != nil {
		return err
	}
	return stage.Run(ctx, e.res.stream, b, func(chunk []byte, _ int) error {
		if r.narrow() {
			return e.comm.AllreduceAs(context.Background(), r.wire, r.tensor(chunk), r.op)
		}
		return e.comm.Allreduce(context.Background(), r.tensor(chunk), r.op)
	})
}

// withoutNCCL reports whether every GPU is alone on its node.
func (e *Engine) withoutNCCL() bool { return e.at.nodes() == e.at.world() && !e.opt.Always }

func chunks(bytes, size int) int { return (bytes + size - 1) / size }

func (e *Engine) fits(b nccl.Buffer, r reduction) error {
	switch {
	case r.t < kernel.Int8 || r.t > kernel.Float64:
		return invalid("data type %v", r.t)
	case r.op > collective.Max:
		return invalid("reduction %v", r.op)
	case b.Bytes()%r.t.Size() != 0:
		return invalid("%d bytes are no whole elements of %v", b.Bytes(), r.t)
	}
	return b.IsOn(e.res.dev)
}

func (e *Engine) has(rank int) error {
	if rank < 0 || rank >= e.at.world() {
		return invalid("rank %d is not within 0 to %d", rank, e.at.world()-1)
	}
	return nil
}

// The intra-node parts of an operation, which NCCL performs.

// reduceToRails combines a buffer of all ranks of the node in place, so that each rail has its part
// of the result. The rest of the buffer is undefined then.
func (e *Engine) reduceToRails(b nccl.Buffer, s partition, t nccl.DataType, op nccl.ReduceOp) []nccl.Operation {
	return e.overRails(b, s, t.Bytes(),
		func(part, all nccl.Buffer) nccl.Operation { return nccl.ReduceScatter(all, part, t, op) },
		func(part nccl.Buffer, rail int) nccl.Operation { return nccl.Reduce(part, part, t, op, rail) })
}

// broadcastFromRails is the reverse: every rank of the node gets the parts of all rails.
func (e *Engine) broadcastFromRails(b nccl.Buffer, s partition, size int) []nccl.Operation {
	return e.overRails(b, s, size,
		func(part, all nccl.Buffer) nccl.Operation { return nccl.AllGather(part, all, nccl.Uint8) },
		func(part nccl.Buffer, rail int) nccl.Operation { return nccl.Broadcast(part, part, nccl.Uint8, rail) })
}

// overRails returns the operations on the parts of a buffer that the rails have, with elements of
// size bytes. If all ranks of the node are rails, one operation of even works on the parts that are
// equally long: all of them, and this rank's. single works on the part of one rail.
func (e *Engine) overRails(b nccl.Buffer, s partition, size int, even func(part, all nccl.Buffer) nccl.Operation,
	single func(part nccl.Buffer, rail int) nccl.Operation,
) (ops []nccl.Operation) {
	if e.local == nil || s.n == 0 {
		return nil
	}
	cut := func(lo, hi int) nccl.Buffer { return b.Slice(lo*size, hi*size) }
	if e.at.localSize() != s.of {
		for i := range s.of {
			if lo, hi := s.part(i); lo < hi {
				ops = append(ops, single(cut(lo, hi), i))
			}
		}
		return ops
	}
	if s.q > 0 {
		lo := e.at.local * s.q
		ops = append(ops, even(cut(lo, lo+s.q), cut(0, s.even())))
	}
	if rest := cut(s.even(), s.n); rest.Bytes() > 0 {
		ops = append(ops, single(rest, s.of-1))
	}
	return ops
}

// dataTypes are NCCL's constants for types; it has none for Int16.
var dataTypes = map[kernel.Type]nccl.DataType{
	kernel.Int8: nccl.Int8, kernel.Uint8: nccl.Uint8, kernel.Int32: nccl.Int32, kernel.Int64: nccl.Int64,
	kernel.Float16: nccl.Float16, kernel.BFloat16: nccl.BFloat16, kernel.Float32: nccl.Float32, kernel.Float64: nccl.Float64,
}

// reduceOps are NCCL's constants for reductions that are complete within the node.
var reduceOps = [...]nccl.ReduceOp{
	collective.Sum: nccl.Sum, collective.Average: nccl.Average, collective.Product: nccl.Product, collective.Min: nccl.Min, collective.Max: nccl.Max,
}

// partialOp is NCCL's constant for a reduction that continues between nodes, where an average is
// divided last.
func partialOp(op collective.Op) nccl.ReduceOp {
	if op == collective.Average {
		return nccl.Sum
	}
	return reduceOps[op]
}
