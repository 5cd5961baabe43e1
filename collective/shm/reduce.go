package shm

import (
	"runtime"
	"slices"

	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/schedule"
)

// Reduction describes how elements are combined.
type Reduction struct {
	Descriptor [DescriptorBytes]byte // the same on all members
	Type       kernel.Type
	Op         kernel.Op
	// Divisor turns a sum into an average; 0 = no division.
	Divisor int
	// InterNode, if set, is called by Allreduce after this member's segment is reduced and before
	// the others read it, to add what other nodes have. It gets small buffers whole, on member 0
	// alone, and staged ones one staging buffer at a time.
	InterNode func(segment []byte) error
	// Rails is the number of members that have a segment, from member 0 on; 0 = all. Only for
	// Allreduce.
	Rails int
}

// Allreduce combines the members' buffers and leaves the result in each of them.
func (g *Group) Allreduce(r Reduction, buf []byte) error {
	return g.reduce(&r, buf, allSegments, -1)
}

// ReduceScatter leaves segment i of the result (see schedule.Segment) at member i, in place. The
// rest of the buffer is undefined afterwards.
func (g *Group) ReduceScatter(r Reduction, buf []byte) error {
	return g.reduce(&r, buf, noSegments, -1)
}

// Reduce leaves the result at root. The other members' buffers are undefined afterwards.
func (g *Group) Reduce(r Reduction, buf []byte, root int) error {
	who := noSegments
	if g.rank == root {
		who = allSegments
	}
	return g.reduce(&r, buf, who, root)
}

// collect says whether a member copies the finished segments of the others.
type collect bool

const (
	noSegments  collect = false
	allSegments collect = true
)

// reduce implements all three. root is the only member that gets the result; -1 = there is none
// such.
func (g *Group) reduce(r *Reduction, buf []byte, p collect, root int) error {
	defer runtime.KeepAlive(buf) // see enter
	k := g.place(buf)
	g.round++
	if k.small() {
		copy(g.small(g.rank, k), buf)
	}
	if err := g.enter(&r.Descriptor, k, buf); err != nil {
		return err
	}
	switch {
	case k.small():
		return g.reduceSmall(r, buf, p, root)
	case !g.vm && g.anyPrivate():
		return g.reduceStaged(r, buf, p)
	}
	if err := g.reduceSegments(r, buf, buf, p); err != nil {
		return err
	}
	return g.leave()
}

// anyPrivate reports whether some member's data is in memory that is not mapped by the others. All
// members get the same answer.
func (g *Group) anyPrivate() bool {
	return slices.ContainsFunc(g.headers, func(h header) bool { return h.location == locPrivate })
}

// reduceSmall combines small data. Every member that needs the result computes it itself, in the
// order of the members.
func (g *Group) reduceSmall(r *Reduction, buf []byte, p collect, root int) error {
	at, n := 0, len(buf)
	if p == noSegments {
		if root >= 0 {
			return nil
		}
		at, n = g.segment(r, len(buf), g.rank)
	}
	if r.InterNode != nil {
		return g.foldAcrossNodes(r, buf)
	}
	g.sum(r, buf[at:at+n], at)
	return nil
}

// sum combines n bytes of all slots, from at on, in dst.
func (g *Group) sum(r *Reduction, dst []byte, at int) {
	n := len(dst)
	of := func(q int) []byte { return g.small(q, g.headers[q].location)[at : at+n] }
	kernel.Combine(r.Type, r.Op, dst, of(0), of(1))
	for q := 2; q < g.size; q++ {
		kernel.Reduce(r.Type, r.Op, dst, of(q))
	}
	r.finish(dst)
}

func (r *Reduction) finish(p []byte) {
	if r.Divisor > 1 {
		kernel.Average(r.Type, p, r.Divisor)
	}
}

// foldAcrossNodes has member 0 combine small data with other nodes.
func (g *Group) foldAcrossNodes(r *Reduction, buf []byte) error {
	if g.rank == 0 {
		g.sum(r, buf, 0)
		if err := r.InterNode(buf); err != nil {
			return err
		}
	}
	return g.Broadcast(r.Descriptor, buf, 0)
}

// segment is the position of member i's part of n bytes.
func (g *Group) segment(r *Reduction, n, i int) (at, length int) {
	rails := g.size
	if r.Rails > 0 {
		rails = r.Rails
	}
	if i >= rails {
		return n, 0
	}
	s := schedule.Segment(n/r.Type.Size(), rails, i)
	return s.Lo * r.Type.Size(), s.Len() * r.Type.Size()
}

// reduceSegments has every member combine one segment, piece by piece, and copy the others' pieces,
// one piece behind. work is this member's data as the others read it; its segment becomes the
// result. The rest of the result goes to dst.
func (g *Group) reduceSegments(r *Reduction, work, dst []byte, p collect) error {
	at, n := g.segment(r, len(work), g.rank)
	_, longest := g.segment(r, len(work), 0)
	if r.InterNode != nil {
		if err := g.segmentAcrossNodes(r, work[at:at+n], at); err != nil {
			return err
		}
	}
	for lo := 0; lo < longest+pieceBytes; lo += pieceBytes {
		if hi := min(lo+pieceBytes, n); lo < hi && r.InterNode == nil {
			if err := g.combine(r, work[at+lo:at+hi], at+lo); err != nil {
				return err
			}
			g.advance(offProgress, g.base[g.rank]+uint64(hi))
		}
		if p == allSegments && lo > 0 {
			if err := g.collect(r, dst, lo-pieceBytes, len(work)); err != nil {
				return err
			}
		}
	}
	for q := range g.size {
		_, n := g.segment(r, len(work), q)
		g.base[q] += uint64(n)
	}
	return nil
}

// segmentAcrossNodes reduces this member's segment, combines it with other nodes, and then
// publishes it as a whole.
func (g *Group) segmentAcrossNodes(r *Reduction, mine []byte, at int) error {
	for lo := 0; lo < len(mine); lo += pieceBytes {
		if err := g.combine(r, mine[lo:min(lo+pieceBytes, len(mine))], at+lo); err != nil {
			return err
		}
	}
	if r.Rails == 0 || g.rank < r.Rails {
		if err := r.InterNode(mine); err != nil {
			return err
		}
	}
	g.advance(offProgress, g.base[g.rank]+uint64(len(mine)))
	return nil
}

// combine reduces one piece, in the order of the members. mine is this member's part and becomes
// the result; at is its offset in everyone's data.
func (g *Group) combine(r *Reduction, mine []byte, at int) error {
	if g.scratch[0] == nil {
		for i := range g.scratch {
			g.scratch[i] = make([]byte, pieceBytes)
		}
	}
	var before []byte // the combination of the members before this one
	for q := range g.size {
		if q == g.rank {
			if before != nil {
				kernel.Combine(r.Type, r.Op, mine, before, mine)
			}
			continue
		}
		theirs, err := g.view(q, at, len(mine), g.scratch[1])
		switch {
		case err != nil:
			return err
		case q > g.rank:
			kernel.Reduce(r.Type, r.Op, mine, theirs)
		case before == nil:
			before = theirs
			g.scratch[0], g.scratch[1] = g.scratch[1], g.scratch[0]
		default:
			kernel.Combine(r.Type, r.Op, g.scratch[0][:len(mine)], before, theirs)
			before = g.scratch[0][:len(mine)]
		}
	}
	r.finish(mine)
	return nil
}

// collect copies a piece of every other member's segment when it is ready.
func (g *Group) collect(r *Reduction, dst []byte, lo, total int) error {
	for d := 1; d < g.size; d++ {
		q := (g.rank + d) % g.size
		at, n := g.segment(r, total, q)
		hi := min(lo+pieceBytes, n)
		if lo >= hi {
			continue
		}
		if err := g.waitFor(q, offProgress, g.base[q]+uint64(hi)); err != nil {
			return err
		}
		if err := g.copyFrom(q, at+lo, dst[at+lo:at+hi]); err != nil {
			return err
		}
	}
	return nil
}

// reduceStaged reduces data that members cannot read: it goes through the segment, one staging
// buffer at a time. The buffers alternate, so nobody waits until one was read.
func (g *Group) reduceStaged(r *Reduction, buf []byte, p collect) error {
	for len(buf) > 0 {
		part := buf[:min(len(buf), stagingBytes)]
		g.round++
		work := g.stagingBuffer(g.rank)[:len(part)]
		copy(work, part)
		if err := g.enter(&r.Descriptor, locStaging, nil); err != nil {
			return err
		}
		if err := g.reduceSegments(r, work, part, p); err != nil {
			return err
		}
		at, n := g.segment(r, len(part), g.rank)
		copy(part[at:at+n], work[at:])
		buf = buf[len(part):]
	}
	return nil
}
