package exec

import (
	"fmt"

	"github.com/regroup-io/regroup/collective/internal/frame"
	"github.com/regroup-io/regroup/collective/schedule"
)

// Algorithm is how an operation over data connections is carried out. Package schedule describes
// them.
type Algorithm string

// The algorithms.
const (
	Direct   Algorithm = "direct"   // every rank to every rank
	Doubling Algorithm = "doubling" // recursive doubling
	Halving  Algorithm = "halving"  // recursive halving, then doubling
	Ring     Algorithm = "ring"     // a pipelined ring
	Tree     Algorithm = "tree"     // a binomial tree
	Bruck    Algorithm = "bruck"    // blocks at distances of 1, 2, 4 and so on
)

// Rule chooses an algorithm for operations up to a size. The first rule of a table that applies is
// taken.
type Rule struct {
	Operation string    // name of the method: "Allreduce", "Broadcast" and so on
	MaxWorld  int       // ranks; 0 = any
	MaxBytes  int       // of the whole buffer; 0 = any
	Algorithm Algorithm // one that the operation has
}

// defaultTable holds measurements of this module's benchmark on two cores over loopback, see
// docs/benchmarks.md: waking a thread costs about as much as sending 32 KiB, so algorithms with few
// steps win below that, and those that send few bytes above.
var defaultTable = []Rule{
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

// algorithm chooses the algorithm of an operation of so many ranks on so many bytes.
func (c *Config) algorithm(m frame.Method, world, bytes int) Algorithm {
	name := m.String()
	for _, table := range [...][]Rule{c.Table, defaultTable} {
		for i := range table {
			r := &table[i]
			if r.Operation == name && (r.MaxWorld == 0 || world <= r.MaxWorld) && (r.MaxBytes == 0 || bytes <= r.MaxBytes) {
				return r.Algorithm
			}
		}
	}
	return Ring
}

const (
	smallMessage = 256 << 10
	largeMessage = 1 << 20
	largeOp      = 16 << 20 // from which on messages are large
)

// chunk is the number of elements of a message of an operation on so many bytes. An element takes
// size bytes on the wire.
func (c *Config) chunk(bytes, size int) int {
	chunk := c.ChunkBytes
	switch {
	case chunk > 0:
	case bytes >= largeOp:
		chunk = largeMessage
	default:
		chunk = smallMessage
	}
	return max(1, chunk/size)
}

// prepare makes the plan of an operation on n elements among the given ranks; nil = all. place is
// this rank's place there, and root is a place, too.
func (x *executor) prepare(d frame.Descriptor, place schedule.Place, ranks []int, n, root int, offsets []int) {
	p := &x.plan
	size := d.Type.Size()
	wide := size
	if d.Narrow {
		wide = d.Wire.Size()
	}
	bytes := n * wide
	chunk := x.cfg.chunk(bytes, wide)
	a := x.cfg.algorithm(d.Method, place.World, bytes)
	if d.Narrow && a != Direct {
		a = Ring // the others would round at each hop
	}
	x.place, x.ranks = place.Rank, ranks
	switch d.Method {
	case frame.Allreduce:
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
	case frame.ReduceScatter:
		if a == Direct {
			schedule.DirectReduceScatter(p, place, n, chunk)
		} else {
			schedule.RingReduceScatter(p, place, n, chunk)
		}
	case frame.Allgather:
		switch a {
		case Direct:
			schedule.DirectAllgather(p, place, offsets, chunk)
		case Bruck:
			schedule.BruckAllgather(p, place, offsets, chunk)
		default:
			schedule.RingAllgather(p, place, offsets, chunk)
		}
	case frame.Broadcast:
		if a == Tree {
			schedule.TreeBroadcast(p, place, root, n, chunk)
		} else {
			schedule.ChainBroadcast(p, place, root, n, chunk)
		}
	case frame.Reduce:
		switch a {
		case Direct:
			schedule.DirectReduce(p, place, root, n, chunk)
		case Tree:
			schedule.TreeReduce(p, place, root, n, chunk)
		default:
			schedule.ChainReduce(p, place, root, n, chunk)
		}
	case frame.Barrier:
		schedule.Barrier(p, place)
	default:
		panic(fmt.Sprintf("no plan for %v", d))
	}
}
