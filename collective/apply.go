package collective

import (
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/schedule"
)

// apply does with a message that arrived aside what its receive says.
func (x *execution) apply(t schedule.Transfer, body []byte) {
	dst := x.dst[t.Lo*x.size : t.Hi*x.size]
	switch {
	case t.Action == schedule.Stash, x.inPlace(t):
		return // it is where it belongs
	case t.Action == schedule.Copy:
		kernel.Widen(x.call.wire, dst, body)
	case x.call.narrow:
		kernel.ReduceWiden(x.call.wire, x.call.op.kernel(), dst, body)
	case t.Action == schedule.Under:
		kernel.Combine(x.call.dtype, x.call.op.kernel(), dst, body, dst)
	default:
		kernel.Reduce(x.call.dtype, x.call.op.kernel(), dst, body)
	}
	if t.Action == schedule.Finish {
		x.finish(dst)
	}
}

// finish does what is done once per element by its owner.
func (x *execution) finish(dst []byte) {
	if x.call.op == Average {
		kernel.Average(x.call.dtype, dst, x.c.opt.World)
	}
	if x.call.narrow {
		// Others receive it narrow, and all must have the same bits.
		x.round(dst)
	}
}

// round gives p the precision of the wire.
func (x *execution) round(p []byte) {
	for len(p) > 0 {
		k := min(len(p), roundBytes)
		x.rounded = grow(x.rounded, k/x.size*x.wide)
		kernel.Narrow(x.call.wire, x.rounded, p[:k])
		kernel.Widen(x.call.wire, p[:k], x.rounded)
		p = p[k:]
	}
}

const roundBytes = 64 << 10 // a multiple of every size, and less than a cache

// fold combines the slots and what is in the buffer, in the order of the ranks.
func (x *execution) fold() {
	span := schedule.Span{Lo: 0, Hi: len(x.dst) / x.size}
	if x.plan.Slots > 0 {
		span = x.plan.Fold
		n := span.Len() * x.wide
		for at := 0; at < n; at += foldBytes {
			x.foldPart(span, at, min(at+foldBytes, n))
		}
	}
	if x.plan.Finish && x.call.op == Average && x.call.method.reduces() {
		kernel.Average(x.call.dtype, x.dst[span.Lo*x.size:span.Hi*x.size], x.c.opt.World)
	}
}

const foldBytes = 64 << 10

// foldPart folds the elements whose bytes on the wire are [lo, hi) of each slot.
func (x *execution) foldPart(span schedule.Span, lo, hi int) {
	rank, n := x.place, span.Len()*x.wide
	scale := func(i int) int { return i / x.wide * x.size }
	own := x.dst[span.Lo*x.size+scale(lo) : span.Lo*x.size+scale(hi)]
	if x.call.narrow {
		x.round(own) // it counts as much, and as little, as it does on the other ranks
	}
	slot := func(i int) []byte { return x.slots[i*n+lo : i*n+hi] }
	op := x.call.op.kernel()
	if rank == 0 {
		for i := range x.plan.Slots {
			x.combine(op, own, slot(i))
		}
		return
	}
	sum := slot(0)
	if x.call.narrow {
		x.sum = grow(x.sum, len(own))
		kernel.Widen(x.call.wire, x.sum, slot(0))
		sum = x.sum
	}
	for i := 1; i < rank; i++ {
		x.combine(op, sum, slot(i))
	}
	kernel.Combine(x.call.dtype, op, own, sum, own)
	for i := rank; i < x.plan.Slots; i++ {
		x.combine(op, own, slot(i))
	}
}

// combine adds what came over the wire to dst.
func (x *execution) combine(op kernel.Op, dst, src []byte) {
	if x.call.narrow {
		kernel.ReduceWiden(x.call.wire, op, dst, src)
		return
	}
	kernel.Reduce(x.call.dtype, op, dst, src)
}
