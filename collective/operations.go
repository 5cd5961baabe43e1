package collective

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/regroup-io/regroup/collective/internal/frame"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/schedule"
)

// Lengths, types, reductions and roots of an operation must agree on all ranks. If one fails, the
// contents of the tensors are undefined. When ctx ends during an operation, the communicator is
// aborted on all ranks; when it ends before the operation has begun, nothing has happened.

// Allreduce combines the tensors of all ranks and leaves the result in each of them, with the same
// bits everywhere.
func (c *Communicator) Allreduce(ctx context.Context, t Tensor, op Op) error {
	return c.run(ctx, frame.Descriptor{Method: frame.Allreduce, Type: t.Type, Reduce: op}, t, t)
}

// AllreduceAs is Allreduce of float32 elements that are sent over connections as Float16 or
// BFloat16: half the bytes. They are combined in float32, and what is sent is rounded, up to World
// times on its way. Ranks that share memory send nothing, and round nothing. With u = 2^-11
// (Float16) or 2^-8 (BFloat16) the error of a sum is at most about World*u times the sum of the
// magnitudes, and World*2^-25 more as Float16, whose smallest numbers are coarser; sums beyond
// 65504, also of some ranks alone, are infinite as Float16.
func (c *Communicator) AllreduceAs(ctx context.Context, wire kernel.Type, t Tensor, op Op) error {
	return c.run(ctx, narrowAllreduce(wire, t, op), t, t)
}

func narrowAllreduce(wire kernel.Type, t Tensor, op Op) frame.Descriptor {
	return frame.Descriptor{Method: frame.Allreduce, Type: t.Type, Reduce: op, Narrow: true, Wire: wire}
}

// ReduceScatter combines the tensors of all ranks and leaves segment r of the result at rank r, in
// place: with n elements, the ranks below n modulo World have one more than the others. The rest of
// the tensor is undefined afterwards.
func (c *Communicator) ReduceScatter(ctx context.Context, t Tensor, op Op) error {
	return c.run(ctx, frame.Descriptor{Method: frame.ReduceScatter, Type: t.Type, Reduce: op}, t, t)
}

// Segment is where rank r finds its part of n elements after a ReduceScatter.
func (c *Communicator) Segment(n, rank int) (lo, hi int) {
	s := schedule.Segment(n, c.opt.World, rank)
	return s.Lo, s.Hi
}

// Reduce combines the tensors of all ranks at root. Those of the other ranks are undefined
// afterwards.
func (c *Communicator) Reduce(ctx context.Context, t Tensor, op Op, root int) error {
	d := frame.Descriptor{Method: frame.Reduce, Type: t.Type, Reduce: op, Root: encodeRoot(root)}
	return c.run(ctx, d, t, t)
}

// Broadcast copies root's tensor to all ranks. A rank returns when it has the data and has passed
// it on, so root may return before others have it; a disagreement on the length may then only be
// reported by root's next operation.
func (c *Communicator) Broadcast(ctx context.Context, t Tensor, root int) error {
	return c.run(ctx, frame.Descriptor{Method: frame.Broadcast, Type: t.Type, Root: encodeRoot(root)}, t, t)
}

// Allgather puts the ranks' equally long send tensors one after the other, in the order of the
// ranks, into recv of every rank. send may be this rank's own part of recv.
func (c *Communicator) Allgather(ctx context.Context, send, recv Tensor) error {
	return c.run(ctx, frame.Descriptor{Method: frame.Allgather, Type: recv.Type}, send, recv)
}

// blobInline is the number of bytes of each buffer that AllgatherBlobs sends with the lengths, in
// worlds where that is little.
const (
	blobInline      = 248
	blobInlineWorld = 64
)

// AllgatherBlobs gathers buffers of different lengths: result i is rank i's. The lengths are
// gathered first, together with the buffers if all are short. The results share one new allocation.
func (c *Communicator) AllgatherBlobs(ctx context.Context, send []byte) ([][]byte, error) {
	if err := c.engine.Acquire(ctx); err != nil {
		return nil, err
	}
	defer c.engine.Release()
	slot := 8 // length, and the buffer if it is short
	if c.opt.World <= blobInlineWorld {
		slot += blobInline
	}
	mine, slots := OfBytes(make([]byte, slot)), OfBytes(make([]byte, slot*c.opt.World))
	binary.LittleEndian.PutUint64(mine.Data, uint64(len(send)))
	copy(mine.Data[8:], send)
	d := frame.Descriptor{Method: frame.Allgather, Type: slots.Type, Origin: uint8(c.origin)}
	if err := c.engine.Execute(ctx, d, mine.Data, slots.Data, nil); err != nil {
		return nil, err
	}
	blobs, offsets, longest := make([][]byte, c.opt.World), make([]int, c.opt.World+1), 0
	for i := range blobs {
		at := slots.Data[i*slot : (i+1)*slot]
		n := int(binary.LittleEndian.Uint64(at))
		offsets[i+1], longest = offsets[i]+n, max(longest, n)
		if n <= slot-8 {
			blobs[i] = at[8 : 8+n : 8+n]
		}
	}
	if longest <= slot-8 {
		return blobs, nil
	}
	gathered := OfBytes(make([]byte, offsets[c.opt.World]))
	if err := c.engine.Execute(ctx, d, send, gathered.Data, offsets); err != nil {
		return nil, err
	}
	for i := range blobs {
		blobs[i] = gathered.Data[offsets[i]:offsets[i+1]:offsets[i+1]]
	}
	return blobs, nil
}

// Alltoall sends block i of send to rank i, which receives it as block c.Rank() of its recv.
// counts[i] and from[i] are the elements of block i of send and of recv; nil = blocks of equal
// length. The counts of both sides must agree. send and recv must not overlap.
func (c *Communicator) Alltoall(ctx context.Context, send, recv Tensor, counts, from []int) error {
	if err := send.validate("send"); err != nil {
		return err
	}
	if err := recv.validate("recv"); err != nil {
		return err
	}
	if send.Type != recv.Type {
		return invalid("send is of %v, recv of %v", send.Type, recv.Type)
	}
	out, err := c.blockOffsets("send", send, counts)
	if err != nil {
		return err
	}
	in, err := c.blockOffsets("recv", recv, from)
	if err != nil {
		return err
	}
	own := c.opt.Rank
	if out[own+1]-out[own] != in[own+1]-in[own] {
		return invalid("block %d has %d elements in send and %d in recv", own, out[own+1]-out[own], in[own+1]-in[own])
	}
	if err := c.engine.Acquire(ctx); err != nil {
		return err
	}
	defer c.engine.Release()
	d := frame.Descriptor{Method: frame.Alltoall, Type: send.Type, Origin: uint8(c.origin)}
	return c.engine.ExecuteAlltoall(ctx, d, send.Data, recv.Data, out, in)
}

// blockOffsets is where the blocks of a tensor begin and the last one ends.
func (c *Communicator) blockOffsets(name string, t Tensor, counts []int) ([]int, error) {
	offsets, err := schedule.Blocks(t.Len(), c.opt.World, counts)
	if err != nil {
		return nil, invalid("%s: %v", name, err)
	}
	return offsets, nil
}

// Barrier returns when every rank has called it.
func (c *Communicator) Barrier(ctx context.Context) error {
	none := OfBytes(nil)
	return c.run(ctx, frame.Descriptor{Method: frame.Barrier, Type: none.Type}, none, none)
}

// Send sends p to a rank that calls Recv with the same length. It returns when p may be reused,
// which does not mean that the peer has it. Messages between two ranks keep their order. A
// connection is dialed when first needed, and p may be large. Send waits for a peer that is slow to
// call Recv as long as its process is alive. A large message to a rank of the same machine is read
// by it in place, so Send returns when Recv has it.
func (c *Communicator) Send(ctx context.Context, to int, p []byte) error {
	return c.engine.Send(ctx, uint8(c.origin), to, p)
}

// Recv fills p with the next message of a rank, which must have the same length; another length is
// a *DivergedError on all ranks.
func (c *Communicator) Recv(ctx context.Context, from int, p []byte) error {
	return c.engine.Recv(ctx, uint8(c.origin), from, p)
}

// encodeRoot is root for a descriptor. A number that does not fit stays one that no rank has.
func encodeRoot(root int) uint32 { return uint32(min(uint(root), math.MaxUint32)) }

func (c *Communicator) validate(d frame.Descriptor, send, recv Tensor) error {
	if err := recv.validate("the tensor"); err != nil {
		return err
	}
	switch {
	case d.Reduce > Max:
		return invalid("reduction %v", d.Reduce)
	case d.Narrow && d.Type != kernel.Float32:
		return invalid("a tensor of %v, only float32 can be sent as %v", d.Type, d.Wire)
	case d.Narrow && d.Wire != kernel.Float16 && d.Wire != kernel.BFloat16:
		return invalid("%v on the wire, not float16 or bfloat16", d.Wire)
	case int64(d.Root) >= int64(c.opt.World):
		return invalid("root %d is not within 0 to %d", int32(d.Root), c.opt.World-1)
	case d.Method != frame.Allgather:
		return nil
	case send.Type != recv.Type || len(recv.Data) != c.opt.World*len(send.Data):
		return invalid("recv has %d bytes of %v, not %d times %d of %v",
			len(recv.Data), recv.Type, c.opt.World, len(send.Data), send.Type)
	}
	return send.validate("send")
}

// run validates an operation, waits until it may run, and executes it.
func (c *Communicator) run(ctx context.Context, d frame.Descriptor, send, recv Tensor) error {
	if err := c.validate(d, send, recv); err != nil {
		return err
	}
	if err := c.engine.Acquire(ctx); err != nil {
		return err
	}
	defer c.engine.Release()
	d.Origin = uint8(c.origin)
	return c.engine.Execute(ctx, d, send.Data, recv.Data, nil)
}
