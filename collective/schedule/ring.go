package schedule

// Allreduce fills p with a ring reduce-scatter followed by a ring all-gather over
// n >= 0 elements, in messages of at most chunk >= 1 elements.
//
// It takes 2(World-1) steps, and a rank sends every element but those of two
// segments twice: 2n(World-1)/World in all, which is the least possible.
// Rank r finishes segment r+1, alone; everyone else receives a copy, so the
// result has the same bits everywhere.
func Allreduce(p *Plan, r Ring, n, chunk int) {
	p.reset(2 * (r.World - 1))
	segment := func(i int) [2]int {
		lo, hi := Segment(n, r.World, r.mod(i))
		return [2]int{lo, hi}
	}
	for s := range r.World - 1 {
		action := Reduce
		if s == r.World-2 {
			action = Finish
		}
		p.step(segment(r.Rank-s), segment(r.Rank-s-1), chunk, action, nothing)
	}
	for s := range r.World - 1 {
		p.step(segment(r.Rank+1-s), segment(r.Rank-s), chunk, Copy, s)
	}
}

// ReduceScatter fills p with the first half of Allreduce: World-1 steps, after
// which rank r holds the finished segment r+1 (see Segment). The other segments
// hold partial results.
func ReduceScatter(p *Plan, r Ring, n, chunk int) {
	p.reset(r.World - 1)
	for s := range r.World - 1 {
		action := Reduce
		if s == r.World-2 {
			action = Finish
		}
		slo, shi := Segment(n, r.World, r.mod(r.Rank-s))
		rlo, rhi := Segment(n, r.World, r.mod(r.Rank-s-1))
		p.step([2]int{slo, shi}, [2]int{rlo, rhi}, chunk, action, nothing)
	}
}

// Allgather fills p with a ring all-gather of World blocks: block i is
// [offsets[i], offsets[i+1]) and starts at rank i. offsets has World+1 entries in
// ascending order. World-1 steps; a rank sends every block but its successor's.
func Allgather(p *Plan, r Ring, offsets []int, chunk int) {
	p.reset(r.World - 1)
	block := func(i int) [2]int {
		i = r.mod(i)
		return [2]int{offsets[i], offsets[i+1]}
	}
	for s := range r.World - 1 {
		p.step(block(r.Rank-s), block(r.Rank-s-1), chunk, Copy, nothing)
	}
}

// Barrier fills p with World-1 steps of empty messages. Message s of a rank says
// "the s+1 ranks up to me have arrived", hence a rank that received the last one
// knows that all have.
func Barrier(p *Plan, r Ring) {
	p.reset(r.World - 1)
	for range r.World - 1 {
		p.step([2]int{}, [2]int{}, 1, Copy, nothing)
	}
}

// Broadcast fills p with a pipeline from root along the ring: every rank but the
// last passes a chunk on as soon as it has it. With c chunks it takes World-2+c
// steps; every rank but the last sends n elements, once.
func Broadcast(p *Plan, r Ring, root, n, chunk int) {
	if r.World == 1 {
		p.reset(0)
		return
	}
	all := [2]int{0, n}
	count := chunks(all, chunk)
	p.reset(r.World - 2 + count)
	place := r.mod(r.Rank - root)
	for k := range count {
		t := cut(all, chunk, k)
		if place > 0 {
			p.Recvs = append(p.Recvs, t)
		}
		if place < r.World-1 {
			t.After = len(p.Recvs)
			p.Sends = append(p.Sends, t)
		}
	}
}
