package schedule

import (
	"iter"
	"math/bits"
)

// Barrier fills p with a dissemination barrier: after step k a rank has heard of the 2^(k+1) ranks
// up to itself, so it takes the logarithm of World to base two steps, rounded up.
func Barrier(p *Plan, r Place) {
	p.reset(bits.Len(uint(r.World - 1)))
	for d := 1; d < r.World; d *= 2 {
		p.send(r.mod(r.Rank+d), Span{}, 1, len(p.Recvs))
		p.recv(r.mod(r.Rank-d), Span{}, 1, 0, Copy)
	}
}

// BruckAllgather fills p with an all-gather in as few steps as a Barrier, see
// RingAllgather for the blocks: in step k a rank
// sends all blocks that it has to rank-2^k. A rank sends the same number of blocks as in a ring.
func BruckAllgather(p *Plan, r Place, offsets []int, chunk int) {
	p.reset(bits.Len(uint(r.World - 1)))
	for d := 1; d < r.World; d *= 2 {
		count, after := min(d, r.World-d), len(p.Recvs)
		for _, s := range r.blocks(offsets, r.Rank, count) {
			p.send(r.mod(r.Rank-d), s, chunk, after)
		}
		for _, s := range r.blocks(offsets, r.mod(r.Rank+d), count) {
			p.recv(r.mod(r.Rank+d), s, chunk, 0, Copy)
		}
	}
}

// blocks yields the spans of count blocks, starting at block from: one, or two if they
// reach around the end.
func (r Place) blocks(offsets []int, from, count int) iter.Seq2[int, Span] {
	return func(yield func(int, Span) bool) {
		last := min(from+count, r.World)
		if !yield(0, Span{offsets[from], offsets[last]}) || from+count == last {
			return
		}
		yield(1, Span{offsets[0], offsets[from+count-last]})
	}
}

// TreeBroadcast fills p with a binomial tree from root: as many steps as a Barrier, and
// root sends once in each.
func TreeBroadcast(p *Plan, r Place, root, n, chunk int) {
	p.reset(bits.Len(uint(r.World - 1)))
	place := r.mod(r.Rank - root)
	d := 1
	for ; d < r.World; d *= 2 {
		if place >= d && place < 2*d {
			p.recv(r.mod(r.Rank-d), Span{0, n}, chunk, 0, Copy)
		} else if place < d && place+d < r.World {
			p.send(r.mod(r.Rank+d), Span{0, n}, chunk, len(p.Recvs))
		}
	}
}

// TreeReduce fills p with the reverse of TreeBroadcast: the parts are combined in pairs
// on the way to root, in the order root, root+1, ... On all ranks but root the buffer
// holds partial results afterwards.
func TreeReduce(p *Plan, r Place, root, n, chunk int) {
	p.reset(bits.Len(uint(r.World - 1)))
	place := r.mod(r.Rank - root)
	for d := 1; d < r.World; d *= 2 {
		if place&d != 0 {
			p.send(r.mod(r.Rank-d), Span{0, n}, chunk, len(p.Recvs))
			return
		}
		if place+d < r.World {
			p.recv(r.mod(r.Rank+d), Span{0, n}, chunk, 0, Reduce)
		}
	}
	p.Finish = true
}
