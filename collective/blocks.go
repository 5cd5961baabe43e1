package collective

import (
	"context"
	"runtime"

	"github.com/regroup-io/regroup/collective/schedule"
)

// AllgatherBlobs gathers buffers of different lengths: result i is rank i's. The
// lengths are gathered first. The results share one new allocation.
func (c *Communicator) AllgatherBlobs(ctx context.Context, send []byte) ([][]byte, error) {
	if err := c.take(ctx); err != nil {
		return nil, err
	}
	defer c.endTurn()
	sizes := make([]int64, c.opt.World)
	k := call{method: allgather, dtype: typeOf[int64]()}
	if err := c.carryOut(ctx, k, Of([]int64{int64(len(send))}), Of(sizes), nil); err != nil {
		return nil, err
	}
	offsets := make([]int, c.opt.World+1)
	for i, n := range sizes {
		offsets[i+1] = offsets[i] + int(n)
	}
	all := OfBytes(make([]byte, offsets[c.opt.World]))
	if err := c.carryOut(ctx, call{method: allgather, dtype: all.Type}, OfBytes(send), all, offsets); err != nil {
		return nil, err
	}
	blobs := make([][]byte, c.opt.World)
	for i := range blobs {
		blobs[i] = all.Data[offsets[i]:offsets[i+1]:offsets[i+1]]
	}
	return blobs, nil
}

// Alltoall sends block i of send to rank i, which finds it as block c.Rank() of its recv.
// counts[i] and from[i] are the elements of block i of send and of recv; nil = blocks of
// equal length. The counts of both sides must agree. send and recv must not overlap.
func (c *Communicator) Alltoall(ctx context.Context, send, recv Tensor, counts, from []int) error {
	return c.alltoall(ctx, send, recv, counts, from, c.take)
}

func (c *Communicator) alltoall(ctx context.Context, send, recv Tensor, counts, from []int, take taker) error {
	if err := send.validate("send"); err != nil {
		return err
	}
	if err := recv.validate("recv"); err != nil {
		return err
	}
	if send.Type != recv.Type {
		return invalid("send is of %v, recv of %v", send.Type, recv.Type)
	}
	out, err := c.blocksOf("send", send, counts)
	if err != nil {
		return err
	}
	in, err := c.blocksOf("recv", recv, from)
	if err != nil {
		return err
	}
	own, size := c.opt.Rank, send.Type.Size()
	if out[own+1]-out[own] != in[own+1]-in[own] {
		return invalid("block %d has %d elements in send and %d in recv", own, out[own+1]-out[own], in[own+1]-in[own])
	}
	if err := take(ctx); err != nil {
		return err
	}
	defer c.endTurn()
	c.seq++
	copy(recv.Data[in[own]*size:in[own+1]*size], send.Data[out[own]*size:])
	if c.opt.World == 1 {
		return nil
	}
	// The ranks' lengths may differ, so the count is none that they must agree on.
	k := call{method: alltoall, dtype: send.Type, seq: c.seq}
	c.begin(ctx, k, len(send.Data))
	defer c.finish()
	defer runtime.KeepAlive(send.Data) // as in carryOut
	if c.local != nil && c.local.Size() == c.opt.World {
		in = append([]int(nil), c.inBytes(in, size)...)
		return c.hosted(k, c.local.Alltoall(c.ticket, send.Data, recv.Data, c.inBytes(out, size), in))
	}
	x := &c.work
	// The totals may differ too: messages are of a size that does not depend on them.
	schedule.Alltoall(&x.plan, schedule.Place{World: c.opt.World, Rank: own}, out, in, c.opt.chunk(0, size))
	x.place, x.ranks, x.out, x.in = own, nil, out, in
	return x.run(ctx, k, send.Data, recv.Data)
}

// blocksOf returns where the blocks of a tensor begin and the last one ends.
func (c *Communicator) blocksOf(name string, t Tensor, counts []int) ([]int, error) {
	offsets := make([]int, c.opt.World+1)
	if counts == nil {
		if t.Len()%c.opt.World != 0 {
			return nil, invalid("%s has %d elements, no multiple of %d ranks", name, t.Len(), c.opt.World)
		}
		for i := range offsets {
			offsets[i] = i * (t.Len() / c.opt.World)
		}
		return offsets, nil
	}
	if len(counts) != c.opt.World {
		return nil, invalid("%d counts of %s for %d ranks", len(counts), name, c.opt.World)
	}
	for i, n := range counts {
		if n < 0 || n > t.Len() {
			return nil, invalid("count %d of %s is %d, not within 0 to %d", i, name, n, t.Len())
		}
		offsets[i+1] = offsets[i] + n
	}
	if offsets[c.opt.World] != t.Len() {
		return nil, invalid("the counts of %s add up to %d of its %d elements", name, offsets[c.opt.World], t.Len())
	}
	return offsets, nil
}
