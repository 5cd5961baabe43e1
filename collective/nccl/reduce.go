package nccl

import (
	"context"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
)

// reduction is what an operation does with elements.
type reduction struct {
	t    kernel.Type
	op   collective.Op
	wire kernel.Type // between the nodes; 0 = as they are
}

func (r reduction) narrow() bool { return r.wire != 0 }

// tensor is a part of the host's memory as the communicator takes it.
func (r reduction) tensor(p []byte) collective.Tensor { return collective.Tensor{Type: r.t, Data: p} }

// Allreduce combines b of all ranks in place, with the same bits everywhere.
//
// On one node all of it is NCCL's. On several, each GPU that has its like on every node gets
// a part of the node's sum, reduces it with its like, and the node puts the parts together.
// An average is the sum, divided at last, as Communicator.Allreduce does; on one node NCCL
// multiplies floats by 1/World before it sums them. What NCCL's minimum and maximum make of
// a NaN is its own affair. NCCL knows no int16: that goes through the host altogether.
func (e *Engine) Allreduce(ctx context.Context, on *Stream, b Buffer, t kernel.Type, op collective.Op) *Task {
	return e.startReduce(ctx, "Allreduce", on, b, reduction{t: t, op: op}, -1)
}

// AllreduceAs is Allreduce of float32 elements that are sent between nodes as Float16 or
// BFloat16, see Communicator.AllreduceAs for the error. Inside a node nothing is rounded.
func (e *Engine) AllreduceAs(ctx context.Context, on *Stream, wire kernel.Type, b Buffer, op collective.Op) *Task {
	if wire != kernel.Float16 && wire != kernel.BFloat16 {
		return failed(invalid("%v on the wire, not float16 or bfloat16", wire))
	}
	return e.startReduce(ctx, "AllreduceAs", on, b, reduction{t: kernel.Float32, op: op, wire: wire}, -1)
}

// Reduce combines b of all ranks at root. On the others it holds anything afterwards.
// Between nodes it sends as much as an Allreduce.
func (e *Engine) Reduce(ctx context.Context, on *Stream, b Buffer, t kernel.Type, op collective.Op, root int) *Task {
	if err := e.has(root); err != nil {
		return failed(err)
	}
	return e.startReduce(ctx, "Reduce", on, b, reduction{t: t, op: op}, root)
}

func (e *Engine) startReduce(ctx context.Context, name string, on *Stream, b Buffer, r reduction, root int) *Task {
	if err := e.fits(b, r); err != nil {
		return failed(err)
	}
	return e.start(ctx, name, on, func(ctx context.Context) (*Work, error) { return e.reduce(ctx, b, r, root) })
}

// reduce carries an Allreduce out, or a Reduce if root is not -1.
func (e *Engine) reduce(ctx context.Context, b Buffer, r reduction, root int) (*Work, error) {
	dtype, known := dataType(r.t)
	s := divide(b.bytes/r.t.Size(), e.at.carriers)
	switch {
	case e.at.world() == 1 && e.local == nil:
		return e.settled(ctx)
	case e.nowhereNCCL() || !known:
		return nil, e.throughHost(ctx, b, r)
	case e.at.nodes() == 1 && b.bytes == 0:
		return e.settled(ctx)
	case e.at.nodes() == 1 && root < 0:
		return e.launch(ctx, AllReduce(b, b, dtype, reduceOp(r.op)))
	case e.at.nodes() == 1:
		return e.launch(ctx, Reduce(b, b, dtype, reduceOp(r.op), root))
	}
	last, err := e.launch(ctx, e.gather(b, s, dtype, partialOp(r.op))...)
	if err != nil {
		return nil, err
	}
	wanted := true // here
	if root >= 0 {
		node, _ := e.at.find(root)
		wanted = node == e.at.node
	}
	if err := e.between(ctx, b, s, r, wanted); err != nil || !wanted {
		return last, err
	}
	return e.launch(ctx, e.spread(b, s, r.t.Size())...)
}

// between reduces this rank's part of a buffer with its like on the other nodes.
func (e *Engine) between(ctx context.Context, b Buffer, s share, r reduction, wanted bool) error {
	stage, err := e.seat.stage(ctx, 0)
	if err != nil {
		return err
	}
	lo, hi := s.part(e.at.local)
	mine, group := b.Slice(lo*r.t.Size(), hi*r.t.Size()), e.at.group()
	// All ranks give as much at a time, as the communicator wants it: a part that is shorter
	// is followed by what happens to be in the slot, and who carries nothing gives only that.
	length, chunk := s.longest()*r.t.Size(), stage.size()
	return stage.travel(ctx, e.seat.stream, max(1, chunks(length, chunk)), func(i int) trip {
		t := trip{down: []piece{{mine.chunk(i, chunk), 0}}}
		if wanted {
			t.up = t.down
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
			kernel.Average(r.t, slot[:mine.chunk(i, chunk).bytes], e.at.world())
		}
		return err
	})
}

// throughHost reduces a whole buffer with the communicator alone.
func (e *Engine) throughHost(ctx context.Context, b Buffer, r reduction) error {
	stage, err := e.seat.stage(ctx, 0)
	if err != nil {
		return err
	}
	chunk := stage.size()
	return stage.travel(ctx, e.seat.stream, max(1, chunks(b.bytes, chunk)), func(i int) trip {
		there := []piece{{b.chunk(i, chunk), 0}}
		return trip{there, there}
	}, func(i int, slot []byte) error {
		p := r.tensor(slot[:b.chunk(i, chunk).bytes])
		if r.narrow() {
			return e.comm.AllreduceAs(context.Background(), r.wire, p, r.op)
		}
		return e.comm.Allreduce(context.Background(), p, r.op)
	})
}

// nowhereNCCL says that every GPU is alone on its node.
func (e *Engine) nowhereNCCL() bool { return e.at.nodes() == e.at.world() && !e.opt.Always }

// chunks is how many of a size so many bytes are.
func chunks(bytes, size int) int { return (bytes + size - 1) / size }

// chunk is the i-th of them in a buffer, empty behind its end.
func (b Buffer) chunk(i, size int) Buffer {
	return b.Slice(min(i*size, b.bytes), min((i+1)*size, b.bytes))
}

// fits checks a buffer and what is to be done with it.
func (e *Engine) fits(b Buffer, r reduction) error {
	switch {
	case r.t < kernel.Int8 || r.t > kernel.Float64:
		return invalid("data type %v", r.t)
	case r.op > collective.Max:
		return invalid("reduction %v", r.op)
	case b.bytes%r.t.Size() != 0:
		return invalid("%d bytes are no whole elements of %v", b.bytes, r.t)
	}
	return b.holds(e.seat.dev, b.bytes)
}

func (e *Engine) has(rank int) error {
	if rank < 0 || rank >= e.at.world() {
		return invalid("rank %d is not within 0 to %d", rank, e.at.world()-1)
	}
	return nil
}
