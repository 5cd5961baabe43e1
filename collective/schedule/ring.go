package schedule

// step appends one round of a ring: a send of one segment to the next rank and a
// receive of another from the previous one. What is sent arrived in the round before,
// chunk by chunk in this order; what arrives overwrites what was sent in the round
// with the given number.
func (p *Plan) step(r Place, send, recv Span, chunk int, action Action, overwrites int) {
	out, in := Transfer{Peer: r.Next()}, Transfer{Peer: r.Prev(), Action: action}
	arrived, overwritten := 0, 0 // by how much each chunk waits for more than the one before it
	if len(p.starts) > 0 {
		out.After, arrived = len(p.Recvs)-chunks(send, chunk)+1, 1
	}
	p.starts = append(p.starts, len(p.Sends))
	if overwrites >= 0 {
		in.After, overwritten = p.starts[overwrites]+1, 1
	}
	p.Sends = divide(p.Sends, out, send, chunk, arrived)
	p.Recvs = divide(p.Recvs, in, recv, chunk, overwritten)
}

// noOverwrite marks a receive that overwrites no element that is sent in this plan.
const noOverwrite = -1

// RingAllreduce fills p with a ring reduce-scatter followed by a ring all-gather over
// n >= 0 elements, in messages of at most chunk >= 1 elements.
//
// It takes 2(World-1) steps, and a rank sends every element but those of two
// segments twice: 2n(World-1)/World in all, which is the least possible.
// Rank r finishes segment r, alone; everyone else receives a copy, so the result has
// the same bits everywhere.
func RingAllreduce(p *Plan, r Place, n, chunk int) {
	p.reset(2 * (r.World - 1))
	p.reduceScatter(r, n, chunk)
	for s := range r.World - 1 {
		p.step(r, Segment(n, r.World, r.mod(r.Rank-s)), Segment(n, r.World, r.mod(r.Rank-s-1)), chunk, Copy, s)
	}
}

// RingReduceScatter fills p with the first half of RingAllreduce: World-1 steps, after
// which rank r holds the finished segment r (see Segment). The other segments
// hold partial results.
func RingReduceScatter(p *Plan, r Place, n, chunk int) {
	p.reset(r.World - 1)
	p.reduceScatter(r, n, chunk)
}

func (p *Plan) reduceScatter(r Place, n, chunk int) {
	for s := range r.World - 1 {
		action := Reduce
		if s == r.World-2 {
			action = Finish
		}
		p.step(r, Segment(n, r.World, r.mod(r.Rank-s-1)), Segment(n, r.World, r.mod(r.Rank-s-2)), chunk, action, noOverwrite)
	}
}

// RingAllgather fills p with a ring all-gather of World blocks: block i is
// [offsets[i], offsets[i+1]) and starts at rank i. offsets has World+1 entries in
// ascending order. World-1 steps; a rank sends every block but its successor's.
func RingAllgather(p *Plan, r Place, offsets []int, chunk int) {
	p.reset(r.World - 1)
	block := func(i int) Span {
		i = r.mod(i)
		return Span{offsets[i], offsets[i+1]}
	}
	for s := range r.World - 1 {
		p.step(r, block(r.Rank-s), block(r.Rank-s-1), chunk, Copy, noOverwrite)
	}
}

// ChainBroadcast fills p with a pipeline from root along the ring: every rank but the
// last passes a chunk on as soon as it has it. With c chunks it takes World-2+c
// steps; every rank but the last sends n elements, once.
func ChainBroadcast(p *Plan, r Place, root, n, chunk int) {
	p.chain(r, r.mod(r.Rank-root), n, chunk, Copy)
}

// ChainReduce fills p with a pipeline along the ring that ends in root, to which every
// rank adds its part. It takes as many steps and messages as ChainBroadcast. The
// elements of the ranks are combined in the order root+1, root+2, ..., root. On all
// ranks but root the buffer holds partial results afterwards.
func ChainReduce(p *Plan, r Place, root, n, chunk int) {
	place := r.mod(r.Rank - root - 1)
	p.chain(r, place, n, chunk, Under)
	p.Finish = place == r.World-1
}

// chain fills p with a pipeline in which place 0 begins.
func (p *Plan) chain(r Place, place, n, chunk int, action Action) {
	if r.World == 1 {
		p.reset(0)
		return
	}
	all := Span{0, n}
	count := chunks(all, chunk)
	p.reset(r.World - 2 + count)
	for k := range count {
		part := cut(all, chunk, k)
		t := Transfer{Lo: part.Lo, Hi: part.Hi}
		if place > 0 {
			t.Peer, t.Action = r.Prev(), action
			p.Recvs = append(p.Recvs, t)
		}
		if place < r.World-1 {
			t.Peer, t.Action, t.After = r.Next(), Copy, len(p.Recvs)
			p.Sends = append(p.Sends, t)
		}
	}
}
