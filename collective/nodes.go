package collective

import (
	"context"
	"fmt"

	"github.com/regroup-io/regroup/collective/schedule"
	"github.com/regroup-io/regroup/collective/shm"
)

// nodes are the machines of a generation, as far as their ranks share memory: a rank that
// shares with nobody is a node of its own.
type nodes struct {
	first []int // ranks, ascending
	size  []int
	mine  int // index of this rank's node
	// carriers is the size of the smallest node: in an operation on large data so many
	// ranks of every node talk to their like on the others, each with a part of the data.
	carriers int
	alike    []int // this rank's like on all nodes, if it is a carrier
	scratch  []int
}

// survey finds out, together with all ranks, who shares memory with whom.
func (c *Communicator) survey(ctx context.Context) error {
	if c.opt.LocalSize == 0 || c.opt.LocalSize == c.opt.World {
		return nil
	}
	mine := []int32{int32(c.opt.LocalRank), int32(c.opt.LocalSize)}
	if c.local == nil {
		mine = []int32{0, 1}
	}
	all := make([]int32, 2*c.opt.World)
	if err := c.Allgather(ctx, Of(mine), Of(all)); err != nil {
		return err
	}
	n := &nodes{carriers: c.opt.World}
	for rank := 0; rank < c.opt.World; {
		size := int(all[2*rank+1])
		for i := range size {
			if at := 2 * (rank + i); rank+i >= c.opt.World || int(all[at]) != i || int(all[at+1]) != size {
				err := fmt.Errorf("rank %d shares memory with %d ranks from itself on, rank %d does not", rank, size, rank+i)
				c.Abort(err)
				return c.Failed()
			}
		}
		if c.opt.Rank >= rank && c.opt.Rank < rank+size {
			n.mine = len(n.first)
		}
		n.first, n.size = append(n.first, rank), append(n.size, size)
		n.carriers = min(n.carriers, size)
		rank += size
	}
	if len(n.first) == c.opt.World {
		return nil // everybody is alone
	}
	if i := c.opt.Rank - n.first[n.mine]; i < n.carriers {
		for _, first := range n.first {
			n.alike = append(n.alike, first+i)
		}
	}
	c.nodes = n
	return nil
}

// help tells whether an operation gains from going machine by machine. In the others every
// byte crosses from one machine to the next as seldom as can be already.
func (n *nodes) help(m method) bool { return m != reduceScatter && m != alltoall }

// place is this rank's node among the nodes.
func (n *nodes) place() schedule.Place { return schedule.Place{World: len(n.first), Rank: n.mine} }

// speakers are the ranks that speak for their nodes if root does for its own.
func (n *nodes) speakers(root int) (ranks []int, place int) {
	n.scratch = append(n.scratch[:0], n.first...)
	for i, first := range n.first {
		if root >= first && root < first+n.size[i] {
			n.scratch[i], place = root, i
		}
	}
	return n.scratch, place
}

// acrossNodes carries a call out in three parts: on the machine, between the machines, and
// on the machine again.
func (c *Communicator) acrossNodes(ctx context.Context, k call, data []byte, offsets []int) error {
	n := c.nodes
	switch k.method {
	case allreduce:
		return c.allreduceNodes(ctx, k, data)
	case allgather:
		return c.allgatherNodes(ctx, k, data, offsets)
	case barrier:
		return c.barrierNodes(ctx, k)
	}
	root := int(k.root)
	speakers, place := n.speakers(root)
	speaker := speakers[n.mine]
	if k.method != broadcast {
		// Divided once, at the root.
		if err := c.onNode(k, func() error { return c.local.Reduce(c.partial(k), data, speaker-c.leader()) }); err != nil {
			return err
		}
	}
	if c.opt.Rank == speaker {
		c.work.prepare(k, n.place(), speakers, len(data)/k.dtype.Size(), place, nil)
		if err := c.work.run(ctx, k, data, data); err != nil {
			return err
		}
	}
	if k.method == reduce {
		return nil
	}
	return c.onNode(k, func() error { return c.local.Broadcast(c.ticket, data, speaker-c.leader()) })
}

// barrierNodes has the first ranks meet when all of their machines are there.
func (c *Communicator) barrierNodes(ctx context.Context, k call) error {
	n := c.nodes
	meet := func() error { return c.local.Barrier(c.ticket) }
	if err := c.onNode(k, meet); err != nil {
		return err
	}
	if c.opt.Rank == n.first[n.mine] {
		c.work.prepare(k, n.place(), n.first, 0, 0, nil)
		if err := c.work.run(ctx, k, nil, nil); err != nil {
			return err
		}
	}
	return c.onNode(k, meet)
}

// onNode does the part on the machine, if this rank is not alone there.
func (c *Communicator) onNode(k call, do func() error) error {
	if c.local == nil {
		return nil
	}
	return c.hosted(k, do())
}

func (c *Communicator) allreduceNodes(ctx context.Context, k call, data []byte) error {
	n := c.nodes
	between := func(part []byte) error {
		c.work.prepare(k, n.place(), n.alike, len(part)/k.dtype.Size(), 0, nil)
		return c.work.run(ctx, k, part, part)
	}
	if c.local == nil {
		return between(data)
	}
	r := c.partial(k)
	r.Rails, r.InterNode = n.carriers, between
	return c.hosted(k, c.local.Allreduce(r, data))
}

// partial is a reduction whose result is none yet: nothing is divided.
func (c *Communicator) partial(k call) (r shm.Reduction) {
	r = c.reduction(k)
	r.Divisor = 0
	return r
}

// allgatherNodes gathers on the machine, has the first ranks exchange what their machines
// have, and passes that on.
func (c *Communicator) allgatherNodes(ctx context.Context, k call, data []byte, offsets []int) error {
	n, size := c.nodes, k.dtype.Size()
	first, count := n.first[n.mine], n.size[n.mine]
	lo, hi := offsets[first]*size, offsets[first+count]*size
	own := append([]int(nil), offsets[first:first+count+1]...)
	for i := range own {
		own[i] = (own[i] - offsets[first]) * size
	}
	if err := c.onNode(k, func() error { return c.local.Allgather(c.ticket, data[lo:hi], own) }); err != nil {
		return err
	}
	if c.opt.Rank == first {
		bounds := make([]int, 0, len(n.first)+1)
		for _, f := range n.first {
			bounds = append(bounds, offsets[f])
		}
		c.work.prepare(k, n.place(), n.first, len(data)/size, 0, append(bounds, offsets[c.opt.World]))
		if err := c.work.run(ctx, k, data, data); err != nil {
			return err
		}
	}
	for _, part := range [][]byte{data[:lo], data[hi:]} {
		if err := c.onNode(k, func() error { return c.local.Broadcast(c.ticket, part, 0) }); err != nil {
			return err
		}
	}
	return nil
}
