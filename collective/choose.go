package collective

import (
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/collective/schedule"
)

// Algorithm is how an operation over wires is carried out; package schedule describes
// them.
type Algorithm string

// The algorithms.
const (
	Direct   Algorithm = "direct"   // everybody to everybody
	Doubling Algorithm = "doubling" // recursive doubling
	Halving  Algorithm = "halving"  // recursive halving, then doubling
	Ring     Algorithm = "ring"     // a ring, pipelined
	Tree     Algorithm = "tree"     // a binomial tree
	Bruck    Algorithm = "bruck"    // blocks at distances of 1, 2, 4 and so on
)

// Rule chooses an algorithm for operations up to a size. In a table the first rule that
// fits is taken.
type Rule struct {
	Operation string    // as the function is called: "Allreduce", "Broadcast" and so on
	MaxWorld  int       // ranks; 0 = any
	MaxBytes  int       // of the whole buffer; 0 = any
	Algorithm Algorithm // one that the operation knows
}

// known are the algorithms of each operation that has a choice.
var known = map[string][]Algorithm{
	"Allreduce":     {Direct, Doubling, Halving, Ring},
	"ReduceScatter": {Direct, Ring},
	"Allgather":     {Direct, Bruck, Ring},
	"Broadcast":     {Tree, Ring},
	"Reduce":        {Direct, Tree, Ring},
}

// measured is the table of last resort. Its figures come from the benchmark of this
// package on two cores over loopback, see docs/benchmarks.md: waking a thread costs about
// as much as sending 32 KiB, so few steps win below that, and few bytes above.
var measured = []Rule{
	{"Allreduce", 8, 32 << 10, Direct},
	{"Allreduce", 0, 32 << 10, Doubling},
	{"Allreduce", 2, 0, Ring},
	{"Allreduce", 0, 256 << 10, Halving},
	{"Allreduce", 0, 0, Ring},
	{"ReduceScatter", 8, 64 << 10, Direct},
	{"ReduceScatter", 0, 0, Ring},
	{"Allgather", 8, 64 << 10, Direct},
	{"Allgather", 0, 256 << 10, Bruck},
	{"Allgather", 0, 0, Ring},
	{"Broadcast", 0, 128 << 10, Tree},
	{"Broadcast", 0, 0, Ring},
	{"Reduce", 8, 32 << 10, Direct},
	{"Reduce", 0, 128 << 10, Tree},
	{"Reduce", 0, 0, Ring},
}

func validateTable(table []Rule) error {
	for i, r := range table {
		switch all, ok := known[r.Operation]; {
		case !ok:
			return invalid("Table[%d].Operation %q is none that has a choice", i, r.Operation)
		case !slices.Contains(all, r.Algorithm):
			return invalid("Table[%d].Algorithm %q is none of %v, which %s knows", i, r.Algorithm, all, r.Operation)
		case r.MaxWorld < 0:
			return invalid("Table[%d].MaxWorld %d is negative", i, r.MaxWorld)
		case r.MaxBytes < 0:
			return invalid("Table[%d].MaxBytes %d is negative", i, r.MaxBytes)
		}
	}
	return nil
}

// choose returns the algorithm for an operation of so many ranks on so many bytes.
func (o *Options) choose(m method, world, bytes int) Algorithm {
	name := methodNames[m]
	for _, table := range [...][]Rule{o.Table, measured} {
		for i := range table {
			r := &table[i]
			if r.Operation == name && (r.MaxWorld == 0 || world <= r.MaxWorld) && (r.MaxBytes == 0 || bytes <= r.MaxBytes) {
				return r.Algorithm
			}
		}
	}
	return Ring
}

// prepare makes the plan of a call on n elements among the ranks of a list, nil = all: this
// one has the given place there, and root is one, too.
func (x *execution) prepare(k call, place schedule.Place, ranks []int, n, root int, offsets []int) {
	p := &x.plan
	size := k.dtype.Size()
	wide := size
	if k.narrow {
		wide = k.wire.Size()
	}
	bytes := n * wide
	chunk := x.c.opt.chunk(bytes, wide)
	a := x.c.opt.choose(k.method, place.World, bytes)
	if k.narrow && a != Direct {
		a = Ring // the others would round on each hop
	}
	x.place, x.ranks = place.Rank, ranks
	switch k.method {
	case allreduce:
		switch a {
		case Direct:
			schedule.DirectAllreduce(p, place, n, chunk)
		case Doubling:
			schedule.DoublingAllreduce(p, place, n, chunk)
		case Halving:
			schedule.HalvingAllreduce(p, place, n, chunk)
		default:
			schedule.RingAllreduce(p, place, n, chunk)
		}
	case reduceScatter:
		if a == Direct {
			schedule.DirectReduceScatter(p, place, n, chunk)
		} else {
			schedule.RingReduceScatter(p, place, n, chunk)
		}
	case allgather:
		switch a {
		case Direct:
			schedule.DirectAllgather(p, place, offsets, chunk)
		case Bruck:
			schedule.BruckAllgather(p, place, offsets, chunk)
		default:
			schedule.RingAllgather(p, place, offsets, chunk)
		}
	case broadcast:
		if a == Tree {
			schedule.TreeBroadcast(p, place, root, n, chunk)
		} else {
			schedule.ChainBroadcast(p, place, root, n, chunk)
		}
	case reduce:
		switch a {
		case Direct:
			schedule.DirectReduce(p, place, root, n, chunk)
		case Tree:
			schedule.TreeReduce(p, place, root, n, chunk)
		default:
			schedule.ChainReduce(p, place, root, n, chunk)
		}
	case barrier:
		schedule.Barrier(p, place)
	default:
		panic(fmt.Sprintf("no plan for %v", k))
	}
}
