package shm

import (
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/schedule"
)

// Reduction says how elements are combined.
type Reduction struct {
	Ticket [TicketBytes]byte // all members must have the same
	Type   kernel.Type
	Op     kernel.Op
	// Divisor turns a sum into an average: 0 = do not divide.
	Divisor int
	// Middle, if set, is called by Allreduce between the reduction of this member's segment
	// and its passing on: what other machines have to add. Small buffers are passed whole,
	// by member 0 alone; those that go through windows once per window.
	Middle func(segment []byte) error
	// Carriers is how many members have a segment, from 0 on; 0 = all. Only for Allreduce.
	Carriers int
}

// Allreduce combines the members' buffers and leaves the result in each of them.
func (g *Group) Allreduce(r Reduction, buf []byte) error {
	return g.reduce(&r, buf, everybody, -1)
}

// ReduceScatter leaves segment i of the result (see schedule.Segment) at member i, in its
// place. The rest of the buffer holds anything afterwards.
func (g *Group) ReduceScatter(r Reduction, buf []byte) error {
	return g.reduce(&r, buf, nobody, -1)
}

// Reduce leaves the result at root. The other members' buffers hold anything afterwards.
func (g *Group) Reduce(r Reduction, buf []byte, root int) error {
	who := nobody
	if g.rank == root {
		who = everybody
	}
	return g.reduce(&r, buf, who, root)
}

// pull says from whom a member takes the finished segments.
type pull bool

const (
	nobody    pull = false
	everybody pull = true
)

// reduce is all three. root is where the result goes, -1 = not to one alone.
func (g *Group) reduce(r *Reduction, buf []byte, p pull, root int) error {
	k := g.place(buf)
	g.round++
	if k.small() {
		copy(g.small(g.rank, k), buf)
	}
	if err := g.enter(&r.Ticket, k, buf); err != nil {
		return err
	}
	switch {
	case k.small():
		return g.fold(r, buf, p, root)
	case g.mustStage():
		return g.staged(r, buf, p)
	}
	if err := g.segments(r, buf, buf, p); err != nil {
		return err
	}
	return g.leave()
}

// mustStage tells, alike on all members, whether somebody's data can not be read.
func (g *Group) mustStage() bool {
	for i := range g.notes {
		if g.notes[i].kind == inPrivate && !g.vm {
			return true
		}
	}
	return false
}

// fold combines small data. Every member that needs a result computes it itself, from the
// first member's data to the last one's.
func (g *Group) fold(r *Reduction, buf []byte, p pull, root int) error {
	at, n := 0, len(buf)
	if p == nobody {
		if root >= 0 {
			return nil
		}
		at, n = g.segment(r, len(buf), g.rank)
	}
	if r.Middle != nil {
		return g.foldAround(r, buf)
	}
	g.sum(r, buf[at:at+n], at)
	return nil
}

// sum folds n bytes of all slots, from at on, into dst.
func (g *Group) sum(r *Reduction, dst []byte, at int) {
	n := len(dst)
	of := func(q int) []byte { return g.small(q, g.notes[q].kind)[at : at+n] }
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

// foldAround has member 0 take small data to other machines and back.
func (g *Group) foldAround(r *Reduction, buf []byte) error {
	if g.rank == 0 {
		g.sum(r, buf, 0)
		if err := r.Middle(buf); err != nil {
			return err
		}
	}
	return g.Broadcast(r.Ticket, buf, 0)
}

// segment is where member i's part of n bytes is.
func (g *Group) segment(r *Reduction, n, i int) (at, length int) {
	carriers := g.size
	if r.Carriers > 0 {
		carriers = r.Carriers
	}
	if i >= carriers {
		return n, 0
	}
	s := schedule.Segment(n/r.Type.Size(), carriers, i)
	return s.Lo * r.Type.Size(), s.Len() * r.Type.Size()
}

// segments has every member combine one segment, piece by piece, and take the pieces of
// the others, which lag one behind. work is this member's data that others can read; its
// segment becomes the result. Everything else of the result goes to dst.
func (g *Group) segments(r *Reduction, work, dst []byte, p pull) error {
	at, n := g.segment(r, len(work), g.rank)
	_, longest := g.segment(r, len(work), 0)
	if r.Middle != nil {
		if err := g.around(r, work[at:at+n], at); err != nil {
			return err
		}
	}
	for lo := 0; lo < longest+pieceBytes; lo += pieceBytes {
		if hi := min(lo+pieceBytes, n); lo < hi && r.Middle == nil {
			if err := g.combine(r, work[at+lo:at+hi], at+lo); err != nil {
				return err
			}
			g.raise(atProgress, g.base[g.rank]+uint64(hi))
		}
		if p == everybody && lo > 0 {
			if err := g.pull(r, dst, lo-pieceBytes, len(work)); err != nil {
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

// around reduces this member's segment, has the other machines add to it, and passes it on
// as a whole.
func (g *Group) around(r *Reduction, mine []byte, at int) error {
	for lo := 0; lo < len(mine); lo += pieceBytes {
		if err := g.combine(r, mine[lo:min(lo+pieceBytes, len(mine))], at+lo); err != nil {
			return err
		}
	}
	if r.Carriers == 0 || g.rank < r.Carriers {
		if err := r.Middle(mine); err != nil {
			return err
		}
	}
	g.raise(atProgress, g.base[g.rank]+uint64(len(mine)))
	return nil
}

// combine reduces one piece, in the order of the members. mine is this member's part, and
// becomes the result; at is its place in everybody's data.
func (g *Group) combine(r *Reduction, mine []byte, at int) error {
	var before []byte // the combination of the members before this one
	for q := range g.size {
		if q == g.rank {
			if before != nil {
				kernel.Combine(r.Type, r.Op, mine, before, mine)
			}
			continue
		}
		theirs, err := g.peek(q, at, len(mine), g.scratch[1])
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

// pull takes a piece of every other member's segment, when it is ready.
func (g *Group) pull(r *Reduction, dst []byte, lo, total int) error {
	for d := 1; d < g.size; d++ {
		q := (g.rank + d) % g.size
		at, n := g.segment(r, total, q)
		hi := min(lo+pieceBytes, n)
		if lo >= hi {
			continue
		}
		if err := g.await(q, atProgress, g.base[q]+uint64(hi)); err != nil {
			return err
		}
		if err := g.fetch(q, at+lo, dst[at+lo:at+hi]); err != nil {
			return err
		}
	}
	return nil
}

// staged is a reduction of data that members cannot read: it goes through the segment, a
// window at a time. The windows take turns, so nobody has to wait until one was read.
func (g *Group) staged(r *Reduction, buf []byte, p pull) error {
	for len(buf) > 0 {
		part := buf[:min(len(buf), stageBytes)]
		g.round++
		work := g.window(g.rank)[:len(part)]
		copy(work, part)
		if err := g.enter(&r.Ticket, inWindow, nil); err != nil {
			return err
		}
		if err := g.segments(r, work, part, p); err != nil {
			return err
		}
		at, n := g.segment(r, len(part), g.rank)
		copy(part[at:at+n], work[at:])
		buf = buf[len(part):]
	}
	return nil
}
