package exec

import (
	"github.com/regroup-io/regroup/collective/internal/frame"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/schedule"
)

func (x *executor) apply(t schedule.Transfer, body []byte) {
	dst := x.dst[t.Lo*x.size : t.Hi*x.size]
	switch {
	case t.Action == schedule.Stash, x.inPlace(t):
		return // it was received where it belongs
	case t.Action == schedule.Copy:
		kernel.Widen(x.op.Wire, dst, body)
	case x.op.Narrow:
		kernel.ReduceWiden(x.op.Wire, x.op.Reduce.Kernel(), dst, body)
	case t.Action == schedule.Under:
		kernel.Combine(x.op.Type, x.op.Reduce.Kernel(), dst, body, dst)
	default:
		kernel.Reduce(x.op.Type, x.op.Reduce.Kernel(), dst, body)
	}
	if t.Action == schedule.Finish {
		x.finish(dst)
	}
}

// finish divides the sum of an average, and rounds to the type on the wire. Only the owner of a
// segment does so.
func (x *executor) finish(dst []byte) {
	if x.op.Reduce == frame.Average {
		kernel.Average(x.op.Type, dst, x.cfg.World)
	}
	if x.op.Narrow {
		// Others receive it narrow, and all must have the same bits.
		x.round(dst)
	}
}

// round gives p the precision of the wire.
func (x *executor) round(p []byte) {
	for len(p) > 0 {
		k := min(len(p), roundBytes)
		x.rounded = grow(x.rounded, k/x.size*x.wide)
		kernel.Narrow(x.op.Wire, x.rounded, p[:k])
		kernel.Widen(x.op.Wire, p[:k], x.rounded)
		p = p[k:]
	}
}

const roundBytes = 64 << 10 // a multiple of every size, and less than a cache

// foldSlots combines the stashed contributions of other ranks and the own one, in the order of the
// ranks. Where none was stashed it only divides the sum of an average.
func (x *executor) foldSlots() {
	span := schedule.Span{Lo: 0, Hi: len(x.dst) / x.size}
	if x.plan.Slots > 0 {
		span = x.plan.Fold
		n := span.Len() * x.wide
		for at := 0; at < n; at += foldBytes {
			x.foldSlotsPart(span, at, min(at+foldBytes, n))
		}
	}
	if x.plan.Finish && x.op.Reduce == frame.Average && x.op.Method.Reduces() {
		kernel.Average(x.op.Type, x.dst[span.Lo*x.size:span.Hi*x.size], x.cfg.World)
	}
}

const foldBytes = 64 << 10

// foldSlotsPart combines the elements whose bytes on the wire are [lo, hi) of each slot.
func (x *executor) foldSlotsPart(span schedule.Span, lo, hi int) {
	rank, n := x.place, span.Len()*x.wide
	scale := func(i int) int { return i / x.wide * x.size }
	own := x.dst[span.Lo*x.size+scale(lo) : span.Lo*x.size+scale(hi)]
	if x.op.Narrow {
		x.round(own) // the other ranks have it rounded
	}
	slot := func(i int) []byte { return x.slots[i*n+lo : i*n+hi] }
	op := x.op.Reduce.Kernel()
	if rank == 0 {
		for i := range x.plan.Slots {
			x.combine(op, own, slot(i))
		}
		return
	}
	sum := slot(0)
	if x.op.Narrow {
		x.sum = grow(x.sum, len(own))
		kernel.Widen(x.op.Wire, x.sum, slot(0))
		sum = x.sum
	}
	for i := 1; i < rank; i++ {
		x.combine(op, sum, slot(i))
	}
	kernel.Combine(x.op.Type, op, own, sum, own)
	for i := rank; i < x.plan.Slots; i++ {
		x.combine(op, own, slot(i))
	}
}

func (x *executor) combine(op kernel.Op, dst, src []byte) {
	if x.op.Narrow {
		kernel.ReduceWiden(x.op.Wire, op, dst, src)
		return
	}
	kernel.Reduce(x.op.Type, op, dst, src)
}
