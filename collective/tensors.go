package collective

import (
	"context"
	"runtime"

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
	return c.do(ctx, call{method: allreduce, dtype: t.Type, op: op}, t, t)
}

// AllreduceAs is Allreduce of float32 elements that are sent over wires as Float16 or
// BFloat16: half the bytes. They are combined in float32, and what is sent is rounded, up to
// World times on its way. Ranks that share memory send nothing, and round nothing. With u =
// 2^-11 (Float16) or 2^-8 (BFloat16) the error of a sum is at most about World*u times the sum
// of the magnitudes, and World*2^-25 more as Float16, whose least numbers are coarser; sums
// beyond 65504, also of some ranks alone, are infinite as Float16.
func (c *Communicator) AllreduceAs(ctx context.Context, wire kernel.Type, t Tensor, op Op) error {
	k, err := narrowCall(wire, t, op)
	if err != nil {
		return err
	}
	return c.do(ctx, k, t, t)
}

func narrowCall(wire kernel.Type, t Tensor, op Op) (call, error) {
	switch {
	case t.Type != kernel.Float32:
		return call{}, invalid("a tensor of %v, only float32 can be sent as %v", t.Type, wire)
	case wire != kernel.Float16 && wire != kernel.BFloat16:
		return call{}, invalid("%v on the wire, not float16 or bfloat16", wire)
	}
	return call{method: allreduce, dtype: t.Type, op: op, narrow: true, wire: wire}, nil
}

// ReduceScatter combines the tensors of all ranks and leaves segment r of the result at
// rank r, in its place: with n elements, the ranks below n modulo World have one more than
// the others. The rest of the tensor holds anything afterwards.
func (c *Communicator) ReduceScatter(ctx context.Context, t Tensor, op Op) error {
	return c.do(ctx, call{method: reduceScatter, dtype: t.Type, op: op}, t, t)
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
	return c.do(ctx, call{method: reduce, dtype: t.Type, op: op, root: uint32(root)}, t, t)
}

// Broadcast copies root's tensor to all ranks. A rank returns when it has the data and has
// passed it on, so root may return before others have it; a disagreement on the length
// may then only be reported by root's next operation.
func (c *Communicator) Broadcast(ctx context.Context, t Tensor, root int) error {
	if err := c.validRoot(root); err != nil {
		return err
	}
	return c.do(ctx, call{method: broadcast, dtype: t.Type, root: uint32(root)}, t, t)
}

// Allgather puts the ranks' equally long send tensors one after the other, in the order of
// the ranks, into recv of every rank. send may be this rank's own part of recv.
func (c *Communicator) Allgather(ctx context.Context, send, recv Tensor) error {
	if err := c.validGather(send, recv); err != nil {
		return err
	}
	return c.do(ctx, call{method: allgather, dtype: recv.Type}, send, recv)
}

func (c *Communicator) validGather(send, recv Tensor) error {
	if send.Type != recv.Type || len(recv.Data) != c.opt.World*len(send.Data) {
		return invalid("recv has %d bytes of %v, not %d times %d of %v", len(recv.Data), recv.Type, c.opt.World, len(send.Data), send.Type)
	}
	return send.validate("send")
}

// Barrier returns when every rank has called it.
func (c *Communicator) Barrier(ctx context.Context) error {
	none := OfBytes(nil)
	return c.do(ctx, call{method: barrier, dtype: none.Type}, none, none)
}

func (c *Communicator) validRoot(root int) error {
	if root < 0 || root >= c.opt.World {
		return invalid("root %d is not within 0 to %d", root, c.opt.World-1)
	}
	return nil
}

// do waits for the turn and carries a call out.
func (c *Communicator) do(ctx context.Context, k call, send, recv Tensor) error {
	return c.doInTurn(ctx, k, send, recv, c.take)
}

func (c *Communicator) doInTurn(ctx context.Context, k call, send, recv Tensor, take taker) error {
	if err := recv.validate("the tensor"); err != nil {
		return err
	}
	if k.op > Max {
		return invalid("reduction %v", k.op)
	}
	if err := take(ctx); err != nil {
		return err
	}
	defer c.endTurn()
	return c.carryOut(ctx, k, send, recv, nil)
}

// carryOut runs a call. The caller has the turn. offsets are those of an all-gather whose
// blocks differ.
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
	if c.opt.World == 1 {
		return nil
	}
	c.begin(ctx, k, len(recv.Data))
	defer c.finish()
	defer runtime.KeepAlive(recv.Data) // others read it where it is, which the collector cannot see
	switch {
	case c.local != nil && c.local.Size() == c.opt.World:
		return c.onHost(k, recv.Data, offsets)
	case c.nodes != nil && c.nodes.help(k.method):
		return c.acrossNodes(ctx, k, recv.Data, offsets)
	}
	place := schedule.Place{World: c.opt.World, Rank: c.opt.Rank}
	c.work.prepare(k, place, nil, recv.Len(), int(k.root), offsets)
	return c.work.run(ctx, k, recv.Data, recv.Data)
}

// evenOffsets are those of blocks of n elements each.
func (c *Communicator) evenOffsets(n int) []int {
	c.offsets = c.offsets[:0]
	for i := range c.opt.World + 1 {
		c.offsets = append(c.offsets, i*n)
	}
	return c.offsets
}
