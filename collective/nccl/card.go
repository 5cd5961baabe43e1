package nccl

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/regroup-io/regroup/collective"
)

// card is what the ranks of a new generation tell each other of their GPUs. All decisions
// about the generation follow from all cards, and so are the same everywhere.
type card struct {
	Absent               string `json:",omitempty"` // why there is no GPU; then nothing else counts
	LocalRank, LocalSize int
	Chunk                int
	Always               bool    `json:",omitempty"`
	NCCL                 Version `json:",omitempty"`
	GPU                  string  `json:",omitempty"` // its UUID; "" = not known

	// What is left of the generation before, if anything.
	Origin  origin
	Was, Of int // rank and world of it
	Reached position
	State   string `json:",omitempty"` // one of those below; "" = there is nothing
	Way     Way    `json:",omitempty"` // how this rank can shrink it
}

// position is how far a rank has come: in which generation, the number of its last task, and
// how often that has launched something. Ranks of a node at the same position have launched
// the same; what one of them has launched and another has not may be done on the first, and
// yet be on its way to the second.
type position struct {
	Generation   uint64
	Task, Launch int
}

// States of a communicator of NCCL that is left.
const (
	works = "works" // and nothing is under way
	quiet = "quiet" // it was revoked
)

// origin names a communicator of NCCL among all of a job: by the generation and the node,
// by its first rank then, for which it was made. The zero value is none.
type origin struct {
	Generation uint64
	First      int
}

// card is this rank's.
func (e *Engine) card(old *Comm, reached position) card {
	c := card{LocalRank: e.opt.LocalRank, LocalSize: e.opt.LocalSize, Chunk: e.opt.ChunkBytes, Always: e.opt.Always}
	if e.opt.Absent != nil {
		c.Absent = e.opt.Absent.Error()
		return c
	}
	l := e.seat.dev.lib
	c.NCCL, c.Way, c.GPU = l.version, l.ReformsBy(), e.seat.dev.uuid()
	if old != nil {
		c.Origin, c.Was, c.Of, c.Reached = e.origin, old.opt.Rank, old.opt.World, reached
		switch {
		case old.Err() == nil:
			c.State = works
		case old.revoked && old.CanShrink() == nil:
			c.State = quiet
		}
	}
	return c
}

// introduce tells this rank's card and returns all.
func introduce(ctx context.Context, comm *collective.Communicator, mine card) ([]card, error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	blobs, err := comm.AllgatherBlobs(ctx, text)
	if err != nil {
		return nil, err
	}
	all := make([]card, len(blobs))
	for rank, b := range blobs {
		if err := json.Unmarshal(b, &all[rank]); err != nil {
			return nil, fmt.Errorf("the card of rank %d: %w", rank, err)
		}
	}
	return all, nil
}

// survey finds out from the cards who is where, seen from a rank.
func survey(all []card, rank int) (layout, error) {
	var l layout
	for r, c := range all {
		if c.Absent != "" {
			return l, fmt.Errorf("rank %d has no GPU: %w: %s", r, ErrUnavailable, c.Absent)
		}
	}
	for first := 0; first < len(all); {
		size := all[first].LocalSize
		for i := range size {
			r := first + i
			if r >= len(all) || all[r].LocalRank != i || all[r].LocalSize != size {
				return l, invalid("rank %d begins a node of %d ranks, which rank %d is not number %d of", first, size, r, i)
			}
			if all[r].NCCL != all[first].NCCL {
				return l, invalid("rank %d has NCCL %v and rank %d of the same node %v", first, all[first].NCCL, r, all[r].NCCL)
			}
			for twin := first; twin < r; twin++ {
				if all[r].GPU != "" && all[r].GPU == all[twin].GPU {
					return l, fmt.Errorf("ranks %d and %d have the same GPU, %s: %w: NCCL wants one for each", twin, r, all[r].GPU, ErrUnavailable)
				}
			}
			if all[r].Chunk != all[0].Chunk || all[r].Always != all[0].Always {
				return l, invalid("ranks 0 and %d differ in ChunkBytes (%d, %d) or Always (%v, %v)", r, all[0].Chunk, all[r].Chunk, all[0].Always, all[r].Always)
			}
		}
		if rank >= first && rank < first+size {
			l.node, l.local = len(l.first), rank-first
		}
		l.add(first, size)
		first += size
	}
	if all[0].Chunk/(l.nodes()+1) < 16 {
		return l, invalid("ChunkBytes %d is too little for %d nodes", all[0].Chunk, l.nodes())
	}
	return l, nil
}

// plan is how each node comes to its communicator of NCCL.
type plan string

const (
	alone  plan = "alone"  // it needs none
	keeps  plan = "kept"   // the old one, as it is
	shrink plan = "shrunk" // out of the old one
	anew   plan = "new"    // a new one
)

// planOf decides for a node.
func planOf(node []card) plan {
	if len(node) == 1 && !node[0].Always {
		return alone
	}
	same := true // all are as they were
	for i, c := range node {
		switch {
		case c.State == "" || c.Origin != node[0].Origin || c.Way != node[0].Way:
			return anew
		case i > 0 && c.Was <= node[i-1].Was:
			return anew
		}
		same = same && c.State == works && c.Reached == node[0].Reached && c.Was == i && c.Of == len(node)
	}
	switch {
	case same:
		return keeps
	case node[0].Way == ByRevoking, node[0].Way == ByShrinking && len(node) < node[0].Of:
		return shrink
	}
	return anew
}
