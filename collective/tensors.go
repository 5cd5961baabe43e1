package collective

import (
	"context"

	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/schedule"
)

// The operations on tensors. Lengths, types, reductions and roots must agree on all
// ranks. If one fails, the tensors hold anything. When ctx ends during an operation, the
// communicator is aborted on all ranks; when it ends before the operation's turn, nothing
// has happened.

// Allreduce combines the tensors of all ranks and leaves the result in each of them, with
// the same bits everywhere.
func (c *Communicator) Allreduce(ctx context.Context, t Tensor, op Op) error {
	return c.do(ctx, call{method: allreduce, dtype: t.Type, op: op}, t, t, nil)
}

// AllreduceAs is Allreduce of float32 elements that are sent over wires as Float16 or
// BFloat16: half the bytes. They are combined in float32, and what is sent is rounded, up to
// World times on its way. Ranks that share memory send nothing, and round nothing. With u =
// 2^-11 (Float16) or 2^-8 (BFloat16) the error of a sum is at most about World*u times the sum
// of the magnitudes, and World*2^-25 more as Float16, whose least numbers are coarser; sums
// beyond 65504, also of some ranks alone, are infinite as Float16.
func (c *Communicator) AllreduceAs(ctx context.Context, wire kernel.Type, t Tensor, op Op) error {
	switch {
	case t.Type != kernel.Float32:
		return invalid("a tensor of %v, only float32 can be sent as %v", t.Type, wire)
	case wire != kernel.Float16 && wire != kernel.BFloat16:
		return invalid("%v on the wire, not float16 or bfloat16", wire)
	}
	return c.do(ctx, call{method: allreduce, dtype: t.Type, op: op, narrow: true, wire: wire}, t, t, nil)
}

// ReduceScatter combines the tensors of all ranks and leaves segment r of the result at
// rank r, in its place: with n elements, the ranks below n modulo World have one more than
// the others. The rest of the tensor holds anything afterwards.
func (c *Communicator) ReduceScatter(ctx context.Context, t Tensor, op Op) error {
	return c.do(ctx, call{method: reduceScatter, dtype: t.Type, op: op}, t, t, nil)
}

// Segment is where rank r finds its part of n elements after a ReduceScatter.
func (c *Communicator) Segment(n, rank int) (lo, hi int) {
	s := schedule.Segment(n, c.opt.World, rank)
	return s.Lo, s.Hi
}

// Reduce combines the tensors of all ranks at root. On the other ranks they hold anything
// afterwards.
func (c *Communicator) Reduce(ctx context.Context, t Tensor, op Op, root int) error {
	if err := c.validRoot(root); err != nil {
		return err
	}
	return c.do(ctx, call{method: reduce, dtype: t.Type, op: op, root: uint32(root)}, t, t, nil)
}

// Broadcast copies root's tensor to all ranks. A rank returns when it has the data and has
// passed it on, so root may return before others have it; a disagreement on the length
// may then only be reported by root's next operation.
func (c *Communicator) Broadcast(ctx context.Context, t Tensor, root int) error {
	if err := c.validRoot(root); err != nil {
		return err
	}
	return c.do(ctx, call{method: broadcast, dtype: t.Type, root: uint32(root)}, t, t, nil)
}

// Allgather puts the ranks' equally long send tensors one after the other, in the order of
// the ranks, into recv of every rank. send may be this rank's own part of recv.
func (c *Communicator) Allgather(ctx context.Context, send, recv Tensor) error {
	if send.Type != recv.Type || len(recv.Data) != c.opt.World*len(send.Data) {
		return invalid("recv has %d bytes of %v, not %d times %d of %v", len(recv.Data), recv.Type, c.opt.World, len(send.Data), send.Type)
	}
	if err := send.validate("send"); err != nil {
		return err
	}
	return c.do(ctx, call{method: allgather, dtype: recv.Type}, send, recv, nil)
}

// Barrier returns when every rank has called it.
func (c *Communicator) Barrier(ctx context.Context) error {
	none := OfBytes(nil)
	return c.do(ctx, call{method: barrier, dtype: none.Type}, none, none, nil)
}

func (c *Communicator) validRoot(root int) error {
	if root < 0 || root >= c.opt.World {
		return invalid("root %d is not within 0 to %d", root, c.opt.World-1)
	}
	return nil
}

// do waits for the turn and carries a call out. offsets are those of an all-gather whose
// blocks differ.
func (c *Communicator) do(ctx context.Context, k call, send, recv Tensor, offsets []int) error {
	if err := recv.validate("the tensor"); err != nil {
		return err
	}
	if k.op > Max {
		return invalid("reduction %v", k.op)
	}
	end, err := c.take(ctx)
	if err != nil {
		return err
	}
	defer end()
	return c.carryOut(ctx, k, send, recv, offsets)
}

// carryOut runs a call. The caller has the turn.
func (c *Communicator) carryOut(ctx context.Context, k call, send, recv Tensor, offsets []int) error {
	c.seq++
	k.seq, k.count = c.seq, uint64(recv.Len())
	if k.method == allgather {
		at, width := c.opt.Rank*len(send.Data), recv.Type.Size()
		if offsets == nil {
			offsets = c.evenOffsets(recv.Len() / c.opt.World)
		} else {
			at = offsets[c.opt.Rank] * width
		}
		copy(recv.Data[at:], send.Data)
	}
	switch {
	case c.opt.World == 1:
		return nil
	case c.local != nil && c.local.Size() == c.opt.World:
		defer c.watch(ctx)()
		c.calls.begin(k)
		return c.onHost(k, recv.Data, offsets)
	}
	place := schedule.Place{World: c.opt.World, Rank: c.opt.Rank}
	c.work.prepare(k, place, offsets, recv.Type.Size())
	return c.begin(ctx, k, recv.Data, recv.Data)
}

// begin executes the plan that was made.
func (c *Communicator) begin(ctx context.Context, k call, src, dst []byte) error {
	defer c.watch(ctx)()
	c.calls.begin(k)
	return c.work.run(ctx, k, src, dst)
}

// evenOffsets are those of blocks of n elements each.
func (c *Communicator) evenOffsets(n int) []int {
	c.offsets = c.offsets[:0]
	for i := range c.opt.World + 1 {
		c.offsets = append(c.offsets, i*n)
	}
	return c.offsets
}
