package collective

import (
	"context"

	"github.com/regroup-io/regroup/collective/schedule"
)

// Allreduce combines the buffers of all ranks and leaves the result in each of
// them, with the same bits everywhere. Lengths, types and op must agree.
//
// If it fails, buf holds anything. When ctx ends during the operation, the
// communicator is aborted on all ranks; when it ends before the operation's turn,
// nothing has happened. The same holds for the other operations.
//
// Ring algorithm, see package schedule; every rank sends about twice its buffer.
func Allreduce[T Number](ctx context.Context, c *Communicator, buf []T, op Op) error {
	if op < Sum || op > Max {
		return invalid("reduction %d", int(op))
	}
	end, err := c.take(ctx)
	if err != nil {
		return err
	}
	defer end()
	if c.opt.World == 1 {
		return nil
	}
	d := typeOf[T]()
	schedule.Allreduce(&c.work.plan, c.ring, len(buf), c.chunk(d))
	return c.run(ctx, call{method: allreduce, dtype: d, op: op, count: uint64(len(buf))}, raw(buf))
}

// Broadcast copies root's buffer to all ranks, which must pass the same length. A
// rank returns when it has the data and has passed it on, so root may return
// before others have it; a disagreement on the length may then only be reported by
// root's next operation.
func Broadcast[T Number](ctx context.Context, c *Communicator, buf []T, root int) error {
	return c.broadcast(ctx, typeOf[T](), len(buf), raw(buf), root)
}

// BroadcastBytes is Broadcast for bytes.
func BroadcastBytes(ctx context.Context, c *Communicator, buf []byte, root int) error {
	return c.broadcast(ctx, bytesType, len(buf), buf, root)
}

func (c *Communicator) broadcast(ctx context.Context, d dtype, n int, data []byte, root int) error {
	if root < 0 || root >= c.opt.World {
		return invalid("root %d is not within 0 to %d", root, c.opt.World-1)
	}
	end, err := c.take(ctx)
	if err != nil {
		return err
	}
	defer end()
	if c.opt.World == 1 {
		return nil
	}
	schedule.Broadcast(&c.work.plan, c.ring, root, n, c.chunk(d))
	return c.run(ctx, call{method: broadcast, dtype: d, root: uint32(root), count: uint64(n)}, data)
}

// Allgather puts the ranks' equally long send buffers one after the other, in the
// order of the ranks, into recv of every rank; len(recv) is World*len(send). send
// may be this rank's own part of recv.
func Allgather[T Number](ctx context.Context, c *Communicator, send, recv []T) error {
	if len(recv) != c.opt.World*len(send) {
		return invalid("recv has %d elements, not %d for each of %d ranks", len(recv), len(send), c.opt.World)
	}
	end, err := c.take(ctx)
	if err != nil {
		return err
	}
	defer end()
	copy(recv[c.opt.Rank*len(send):], send)
	return c.gather(ctx, typeOf[T](), raw(recv), nil)
}

// AllgatherBytes is Allgather for bytes.
func AllgatherBytes(ctx context.Context, c *Communicator, send, recv []byte) error {
	if len(recv) != c.opt.World*len(send) {
		return invalid("recv has %d bytes, not %d for each of %d ranks", len(recv), len(send), c.opt.World)
	}
	end, err := c.take(ctx)
	if err != nil {
		return err
	}
	defer end()
	copy(recv[c.opt.Rank*len(send):], send)
	return c.gather(ctx, bytesType, recv, nil)
}

// AllgatherBlobs gathers buffers of different lengths: result i is rank i's. The
// lengths are gathered first. The results share one new allocation.
func AllgatherBlobs(ctx context.Context, c *Communicator, send []byte) ([][]byte, error) {
	end, err := c.take(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	sizes := make([]int64, c.opt.World)
	sizes[c.opt.Rank] = int64(len(send))
	if err := c.gather(ctx, int64Type, raw(sizes), nil); err != nil {
		return nil, err
	}
	offsets := make([]int, c.opt.World+1)
	for i, n := range sizes {
		offsets[i+1] = offsets[i] + int(n)
	}
	all := make([]byte, offsets[c.opt.World])
	copy(all[offsets[c.opt.Rank]:], send)
	if err := c.gather(ctx, bytesType, all, offsets); err != nil {
		return nil, err
	}
	blobs := make([][]byte, c.opt.World)
	for i := range blobs {
		blobs[i] = all[offsets[i]:offsets[i+1]:offsets[i+1]]
	}
	return blobs, nil
}

// gather runs an all-gather over data, which has this rank's block in place; nil
// offsets mean equal blocks.
func (c *Communicator) gather(ctx context.Context, d dtype, data []byte, offsets []int) error {
	if c.opt.World == 1 {
		return nil
	}
	n := len(data) / d.size()
	if offsets == nil {
		offsets = make([]int, c.opt.World+1)
		for i := range offsets {
			offsets[i] = i * (n / c.opt.World)
		}
	}
	schedule.Allgather(&c.work.plan, c.ring, offsets, c.chunk(d))
	return c.run(ctx, call{method: allgather, dtype: d, count: uint64(n)}, data)
}

// Barrier returns when every rank has called it.
func (c *Communicator) Barrier(ctx context.Context) error {
	end, err := c.take(ctx)
	if err != nil {
		return err
	}
	defer end()
	if c.opt.World == 1 {
		return nil
	}
	schedule.Barrier(&c.work.plan, c.ring)
	return c.run(ctx, call{method: barrier}, nil)
}

// chunk is the number of elements of one message.
func (c *Communicator) chunk(d dtype) int { return max(1, c.opt.ChunkBytes/d.size()) }
