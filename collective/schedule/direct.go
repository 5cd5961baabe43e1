package schedule

// The direct plans: every rank sends to every rank at once. One step, but World-1 messages each:
// for few ranks and little data. Contributions are combined in the order of the ranks.

// DirectAllreduce fills p with one message of the whole buffer to every other rank.
// Every rank combines all contributions itself.
func DirectAllreduce(p *Plan, r Place, n, chunk int) {
	p.reset(min(1, r.World-1))
	p.toAll(r, func(int) Span { return Span{0, n} }, chunk)
	p.stash(r, Span{0, n}, chunk)
}

// DirectReduceScatter fills p with one message to every other rank: this rank's contribution to
// that rank's segment. Rank r ends with the finished segment r.
func DirectReduceScatter(p *Plan, r Place, n, chunk int) {
	p.reset(min(1, r.World-1))
	p.toAll(r, func(peer int) Span { return Segment(n, r.World, peer) }, chunk)
	p.stash(r, Segment(n, r.World, r.Rank), chunk)
}

// DirectReduce fills p with one message from every rank to root, which ends with the
// result; the other ranks' buffers are not changed.
func DirectReduce(p *Plan, r Place, root, n, chunk int) {
	p.reset(min(1, r.World-1))
	if r.Rank == root {
		p.stash(r, Span{0, n}, chunk)
		return
	}
	p.send(root, Span{0, n}, chunk, 0)
}

// DirectAllgather fills p with one message of the own block to every other rank; see
// RingAllgather.
func DirectAllgather(p *Plan, r Place, offsets []int, chunk int) {
	p.reset(min(1, r.World-1))
	p.toAll(r, func(int) Span { return Span{offsets[r.Rank], offsets[r.Rank+1]} }, chunk)
	for d := 1; d < r.World; d++ {
		from := r.mod(r.Rank - d)
		p.recv(from, Span{offsets[from], offsets[from+1]}, chunk, 0, Copy)
	}
}

// Alltoall fills p with a pairwise exchange: in step d a rank sends its block for rank
// r+d and receives the block that rank r-d has for it. Block i of what is sent is
// [send[i], send[i+1]) of one buffer, block i of what is received is
// [recv[i], recv[i+1]) of another. The own block is left to the caller.
func Alltoall(p *Plan, r Place, send, recv []int, chunk int) {
	p.reset(r.World - 1)
	p.toAll(r, func(peer int) Span { return Span{send[peer], send[peer+1]} }, chunk)
	for d := 1; d < r.World; d++ {
		from := r.mod(r.Rank - d)
		p.recv(from, Span{recv[from], recv[from+1]}, chunk, 0, Copy)
	}
}

// toAll appends a send to every other rank, the next one first, so that not all ranks
// begin with the same one.
func (p *Plan) toAll(r Place, what func(peer int) Span, chunk int) {
	for d := 1; d < r.World; d++ {
		peer := r.mod(r.Rank + d)
		p.send(peer, what(peer), chunk, 0)
	}
}

// stash appends a receive of s from every other rank, in the order in which they send.
func (p *Plan) stash(r Place, s Span, chunk int) {
	p.Slots, p.Fold, p.Finish = r.World-1, s, true
	for d := 1; d < r.World; d++ {
		from, first := r.mod(r.Rank-d), len(p.Recvs)
		p.recv(from, s, chunk, 0, Stash)
		slot := from
		if from > r.Rank {
			slot--
		}
		for i := first; i < len(p.Recvs); i++ {
			p.Recvs[i].Slot = slot
		}
	}
}
