package exec

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/regroup-io/regroup/collective/internal/frame"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/schedule"
	"github.com/regroup-io/regroup/collective/shm"
)

// topology is how the ranks of a generation are spread over nodes. A node is a set of ranks that
// share memory; a rank that shares with none is a node of its own.
type topology struct {
	first []int // first rank of each node, ascending
	size  []int
	mine  int // index of this rank's node
	// rails is the size of the smallest node. In an allreduce that many ranks of each node talk to
	// their peers on the other nodes, each with a part of the data.
	rails     int
	railPeers []int // the ranks of this rank's rail, itself included; nil = it has none
	scratch   []int
}

// discoverTopology finds out, together with all ranks, which ranks share memory. It leaves nodes
// nil if all or none do.
func (e *Engine) discoverTopology(ctx context.Context) error {
	if e.cfg.LocalSize == 0 || e.cfg.LocalSize == e.cfg.World {
		return nil
	}
	localRank, localSize := e.cfg.LocalRank, e.cfg.LocalSize
	if e.local.group == nil {
		localRank, localSize = 0, 1
	}
	all, err := e.allgatherInts(ctx, localRank, localSize)
	if err != nil {
		return err
	}
	n := &topology{rails: e.cfg.World}
	for rank := 0; rank < e.cfg.World; {
		size := all[2*rank+1]
		for i := range size {
			if at := 2 * (rank + i); rank+i >= e.cfg.World || all[at] != i || all[at+1] != size {
				err := fmt.Errorf("rank %d shares memory with %d ranks from itself on, rank %d does not", rank, size, rank+i)
				e.session.Abort(err)
				return e.session.Failed()
			}
		}
		if e.cfg.Rank >= rank && e.cfg.Rank < rank+size {
			n.mine = len(n.first)
		}
		n.first, n.size = append(n.first, rank), append(n.size, size)
		n.rails = min(n.rails, size)
		rank += size
	}
	if len(n.first) == e.cfg.World {
		return nil // every rank is a node of its own
	}
	if i := e.cfg.Rank - n.first[n.mine]; i < n.rails {
		for _, first := range n.first {
			n.railPeers = append(n.railPeers, first+i)
		}
	}
	e.nodes = n
	return nil
}

func (e *Engine) allgatherInts(ctx context.Context, a, b int) ([]int, error) {
	ne := binary.NativeEndian
	mine := ne.AppendUint32(ne.AppendUint32(nil, uint32(a)), uint32(b))
	gathered := make([]byte, len(mine)*e.cfg.World)
	if err := e.Acquire(ctx); err != nil {
		return nil, err
	}
	defer e.Release()
	d := frame.Descriptor{Method: frame.Allgather, Type: kernel.Int32}
	if err := e.Execute(ctx, d, mine, gathered, nil); err != nil {
		return nil, err
	}
	all := make([]int, 2*e.cfg.World)
	for i := range all {
		all[i] = int(int32(ne.Uint32(gathered[4*i:])))
	}
	return all, nil
}

// help reports whether a method gains from an intra-node and an inter-node part. For the others
// every byte crosses between nodes as seldom as possible already.
func (n *topology) help(m frame.Method) bool { return m != frame.ReduceScatter && m != frame.Alltoall }

// place is the place of this rank's node among the nodes.
func (n *topology) place() schedule.Place { return schedule.Place{World: len(n.first), Rank: n.mine} }

// leaders returns the rank of each node that takes part in the inter-node part of an operation with
// a root: the root for its own node. place is the index of the root's node.
func (n *topology) leaders(root int) (ranks []int, place int) {
	n.scratch = append(n.scratch[:0], n.first...)
	for i, first := range n.first {
		if root >= first && root < first+n.size[i] {
			n.scratch[i], place = root, i
		}
	}
	return n.scratch, place
}

// executeAcrossNodes carries out an operation in three parts: intra-node, inter-node, intra-node.
func (e *Engine) executeAcrossNodes(ctx context.Context, d frame.Descriptor, data []byte, offsets []int) error {
	n := e.nodes
	switch d.Method {
	case frame.Allreduce:
		return e.allreduceAcrossNodes(ctx, d, data)
	case frame.Allgather:
		return e.allgatherAcrossNodes(ctx, d, data, offsets)
	case frame.Barrier:
		return e.barrierAcrossNodes(ctx, d)
	}
	leaders, place := n.leaders(int(d.Root))
	leader := leaders[n.mine]
	local := leader - e.local.first
	if d.Method != frame.Broadcast {
		// An average is divided once, at the root.
		if err := e.intraNode(d, func(g *shm.Group) error { return g.Reduce(e.partialReduction(d), data, local) }); err != nil {
			return err
		}
	}
	if e.cfg.Rank == leader {
		e.executor.prepare(d, n.place(), leaders, len(data)/d.Type.Size(), place, nil)
		if err := e.executor.run(ctx, d, data, data); err != nil {
			return err
		}
	}
	if d.Method == frame.Reduce {
		return nil
	}
	return e.intraNode(d, func(g *shm.Group) error { return g.Broadcast(e.local.descriptor, data, local) })
}

// barrierAcrossNodes lets the first ranks of the nodes meet when all ranks of their nodes are
// there.
func (e *Engine) barrierAcrossNodes(ctx context.Context, d frame.Descriptor) error {
	n := e.nodes
	meet := func(g *shm.Group) error { return g.Barrier(e.local.descriptor) }
	if err := e.intraNode(d, meet); err != nil {
		return err
	}
	if e.cfg.Rank == n.first[n.mine] {
		e.executor.prepare(d, n.place(), n.first, 0, 0, nil)
		if err := e.executor.run(ctx, d, nil, nil); err != nil {
			return err
		}
	}
	return e.intraNode(d, meet)
}

// intraNode does the intra-node part of an operation, if this rank shares memory with others.
func (e *Engine) intraNode(d frame.Descriptor, do func(*shm.Group) error) error {
	if e.local.group == nil {
		return nil
	}
	return e.local.check(d, do(e.local.group))
}

func (e *Engine) allreduceAcrossNodes(ctx context.Context, d frame.Descriptor, data []byte) error {
	n := e.nodes
	interNode := func(part []byte) error {
		e.executor.prepare(d, n.place(), n.railPeers, len(part)/d.Type.Size(), 0, nil)
		return e.executor.run(ctx, d, part, part)
	}
	if e.local.group == nil {
		return interNode(data)
	}
	r := e.partialReduction(d)
	r.Rails, r.InterNode = n.rails, interNode
	return e.local.check(d, e.local.group.Allreduce(r, data))
}

// partialReduction is a reduction whose result other nodes add to: nothing is divided yet.
func (e *Engine) partialReduction(d frame.Descriptor) shm.Reduction {
	r := e.local.reduction(d)
	r.Divisor = 0
	return r
}

// allgatherAcrossNodes gathers on each node, has the first ranks exchange what their nodes have,
// and broadcasts that on each node.
func (e *Engine) allgatherAcrossNodes(ctx context.Context, d frame.Descriptor, data []byte, offsets []int) error {
	n, size := e.nodes, d.Type.Size()
	first, count := n.first[n.mine], n.size[n.mine]
	lo, hi := offsets[first]*size, offsets[first+count]*size
	own := append([]int(nil), offsets[first:first+count+1]...)
	for i := range own {
		own[i] = (own[i] - offsets[first]) * size
	}
	if err := e.intraNode(d, func(g *shm.Group) error { return g.Allgather(e.local.descriptor, data[lo:hi], own) }); err != nil {
		return err
	}
	if e.cfg.Rank == first {
		bounds := make([]int, 0, len(n.first)+1)
		for _, f := range n.first {
			bounds = append(bounds, offsets[f])
		}
		e.executor.prepare(d, n.place(), n.first, len(data)/size, 0, append(bounds, offsets[e.cfg.World]))
		if err := e.executor.run(ctx, d, data, data); err != nil {
			return err
		}
	}
	for _, part := range [][]byte{data[:lo], data[hi:]} {
		if err := e.intraNode(d, func(g *shm.Group) error { return g.Broadcast(e.local.descriptor, part, 0) }); err != nil {
			return err
		}
	}
	return nil
}
