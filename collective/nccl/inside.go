package nccl

import (
	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
)

// The parts of an operation inside a node, which are NCCL's.

// gather combines a buffer of all ranks of the node in place, so that each carrier has its
// part of it. The rest of the buffer holds anything then.
func (e *Engine) gather(b Buffer, s share, t DataType, op ReduceOp) (ops []Operation) {
	if e.local == nil || s.n == 0 {
		return nil
	}
	size := t.Bytes()
	cut := func(lo, hi int) Buffer { return b.Slice(lo*size, hi*size) }
	if e.at.here() != s.of {
		for i := range s.of {
			if lo, hi := s.part(i); lo < hi {
				ops = append(ops, Reduce(cut(lo, hi), cut(lo, hi), t, op, i))
			}
		}
		return ops
	}
	if s.q > 0 {
		lo := e.at.local * s.q
		ops = append(ops, ReduceScatter(cut(0, s.even()), cut(lo, lo+s.q), t, op))
	}
	if rest := cut(s.even(), s.n); rest.bytes > 0 {
		ops = append(ops, Reduce(rest, rest, t, op, s.of-1))
	}
	return ops
}

// spread is the way back: every rank of the node gets what the carriers have.
func (e *Engine) spread(b Buffer, s share, size int) (ops []Operation) {
	if e.local == nil || s.n == 0 {
		return nil
	}
	cut := func(lo, hi int) Buffer { return b.Slice(lo*size, hi*size) }
	if e.at.here() != s.of {
		for i := range s.of {
			if lo, hi := s.part(i); lo < hi {
				ops = append(ops, Broadcast(cut(lo, hi), cut(lo, hi), Uint8, i))
			}
		}
		return ops
	}
	if s.q > 0 {
		lo := e.at.local * s.q
		ops = append(ops, AllGather(cut(lo, lo+s.q), cut(0, s.even()), Uint8))
	}
	if rest := cut(s.even(), s.n); rest.bytes > 0 {
		ops = append(ops, Broadcast(rest, rest, Uint8, s.of-1))
	}
	return ops
}

// dataType is NCCL's name of a type; it has none for Int16.
func dataType(t kernel.Type) (DataType, bool) {
	switch t {
	case kernel.Int8:
		return Int8, true
	case kernel.Uint8:
		return Uint8, true
	case kernel.Int32:
		return Int32, true
	case kernel.Int64:
		return Int64, true
	case kernel.Float16:
		return Float16, true
	case kernel.BFloat16:
		return BFloat16, true
	case kernel.Float32:
		return Float32, true
	case kernel.Float64:
		return Float64, true
	}
	return 0, false
}

// reduceOp is NCCL's name of a reduction that ends inside the node.
func reduceOp(op collective.Op) ReduceOp {
	switch op {
	case collective.Average:
		return Average
	case collective.Product:
		return Product
	case collective.Min:
		return Min
	case collective.Max:
		return Max
	}
	return Sum
}

// partialOp is the same for one that goes on between the nodes: divided is last.
func partialOp(op collective.Op) ReduceOp {
	if op == collective.Average {
		return Sum
	}
	return reduceOp(op)
}

// kernelOp is the host's name of such a one.
func kernelOp(op collective.Op) kernel.Op {
	switch op {
	case collective.Product:
		return kernel.OpProduct
	case collective.Min:
		return kernel.OpMin
	case collective.Max:
		return kernel.OpMax
	}
	return kernel.OpSum
}
