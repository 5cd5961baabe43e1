package schedule

import "math/bits"

// The plans of the hypercube: in step k a rank exchanges with the one whose number differs in bit
// k. When World is not a power of two, every second one of the first ranks sends its part to its
// neighbour first and receives the result at the end.

// hypercube is a rank's place in the hypercube.
type hypercube struct {
	size    int // largest power of two up to World
	at      int // -1 = not in it
	partner int // the rank that represents this one, or is represented by it; -1 = none
}

func (r Place) hypercube() hypercube {
	c := hypercube{size: 1 << (bits.Len(uint(r.World)) - 1), partner: -1}
	extra := r.World - c.size
	switch {
	case r.Rank >= 2*extra:
		c.at = r.Rank - extra
	case r.Rank%2 == 0:
		c.at, c.partner = -1, r.Rank+1
	default:
		c.at, c.partner = r.Rank/2, r.Rank-1
	}
	return c
}

// rank is the rank at a place of the hypercube.
func (r Place) rank(c hypercube, at int) int {
	if extra := r.World - c.size; at >= extra {
		return at + extra
	}
	return 2*at + 1
}

func (c hypercube) steps() int {
	return bits.Len(uint(c.size)) - 1
}

// DoublingAllreduce fills p with a recursive doubling: log2(World) steps of the whole
// buffer (two more when World is not a power of two). For little data and many ranks.
// The parts are combined in the order of the ranks, as a tree.
func DoublingAllreduce(p *Plan, r Place, n, chunk int) {
	c, all := r.hypercube(), Span{0, n}
	p.reset(c.steps())
	if !p.enter(r, c, all, chunk) {
		return
	}
	for bit := 1; bit < c.size; bit *= 2 {
		p.exchange(r.rank(c, c.at^bit), all, chunk, c.at&bit != 0)
	}
	p.Finish = true
	p.leave(c, all, chunk)
}

// exchange exchanges s with a peer and combines the two, the lower rank's part first.
func (p *Plan) exchange(peer int, s Span, chunk int, upper bool) {
	action := Reduce
	if upper {
		action = Under
	}
	first := len(p.Sends)
	p.send(peer, s, chunk, len(p.Recvs))
	p.Recvs = divide(p.Recvs, Transfer{Peer: peer, After: first + 1, Action: action}, s, chunk, 1)
}

// enter lets a rank outside of the hypercube send its part and receive the result. It returns false
// for such a rank.
func (p *Plan) enter(r Place, c hypercube, all Span, chunk int) bool {
	if r.World > c.size {
		p.Steps += 2
	}
	switch {
	case c.at < 0:
		p.send(c.partner, all, chunk, 0)
		p.recv(c.partner, all, chunk, len(p.Sends), Copy)
		p.Finish = true
		return false
	case c.partner >= 0:
		p.recv(c.partner, all, chunk, 0, Under)
	}
	return true
}

// leave sends the result to the rank that this one represents.
func (p *Plan) leave(c hypercube, all Span, chunk int) {
	if c.partner >= 0 {
		p.send(c.partner, all, chunk, len(p.Recvs))
	}
}

// HalvingAllreduce fills p with a reduce-scatter by recursive halving and an all-gather by
// recursive doubling: 2 log2(World) steps, in which a rank of the hypercube sends 2n(size-1)/size
// elements. For data of medium size.
func HalvingAllreduce(p *Plan, r Place, n, chunk int) {
	c, all := r.hypercube(), Span{0, n}
	p.reset(2 * c.steps())
	if !p.enter(r, c, all, chunk) {
		return
	}
	span, half := func(at, count int) Span {
		return Span{Segment(n, c.size, at).Lo, Segment(n, c.size, at+count-1).Hi}
	}, c.size/2
	mine := 0 // first of the segments that this rank still works on
	for ; half > 0; half /= 2 {
		peer, low := r.rank(c, c.at^half), span(mine, half)
		high := span(mine+half, half)
		keep, give, action := low, high, Reduce
		if c.at&half != 0 {
			keep, give, action, mine = high, low, Under, mine+half
		}
		p.send(peer, give, chunk, len(p.Recvs))
		p.recv(peer, keep, chunk, 0, action)
	}
	for count := 1; count < c.size; count *= 2 {
		other := mine ^ count
		p.send(r.rank(c, c.at^count), span(mine, count), chunk, len(p.Recvs))
		p.recv(r.rank(c, c.at^count), span(other, count), chunk, len(p.Sends)-chunks(span(mine, count), chunk), Copy)
		mine = min(mine, other)
	}
	p.Finish = true
	p.leave(c, all, chunk)
}
