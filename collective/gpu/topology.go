package gpu

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/nccl"
)

// memberInfo is what the ranks of a new generation exchange about their GPUs. All decisions about
// the generation follow from all infos, and so are the same everywhere.
type memberInfo struct {
	Absent               string `json:",omitempty"` // why there is no GPU; then nothing else counts
	LocalRank, LocalSize int
	Chunk                int
	Always               bool         `json:",omitempty"`
	NCCL                 nccl.Version `json:",omitempty"`
	GPU                  string       `json:",omitempty"` // its UUID; "" = not known

	// What remains of the previous generation, if anything.
	Origin  commOrigin
	Was, Of int // rank and world in it
	Reached progress
	State   string   `json:",omitempty"` // one of those below; "" = there is nothing
	Way     nccl.Way `json:",omitempty"` // how this rank can shrink it
}

// progress is how far a rank has come: in which generation, the number of its last task, and how
// many launches that has made. Ranks of a node with equal progress have launched the same; what
// only one of them has launched may be done on one and still be running on another.
type progress struct {
	Generation   uint64
	Task, Launch int
}

// States of a remaining NCCL communicator.
const (
	stateWorking = "works" // and nothing is under way
	stateRevoked = "quiet" // it was revoked
)

// commOrigin identifies an NCCL communicator among all of a job, by the generation and the first
// rank of the node for which it was made. The zero value is none.
type commOrigin struct {
	Generation uint64
	First      int
}

func (e *Engine) memberInfo(old *nccl.Comm, reached progress) memberInfo {
	c := memberInfo{LocalRank: e.opt.LocalRank, LocalSize: e.opt.LocalSize, Chunk: e.opt.ChunkBytes, Always: e.opt.Always}
	if e.opt.Absent != nil {
		c.Absent = e.opt.Absent.Error()
		return c
	}
	l := e.res.dev.Library()
	c.NCCL, c.Way, c.GPU = l.Version(), l.ReformsBy(), e.res.dev.Info().UUID
	if old != nil {
		c.Origin, c.Was, c.Of, c.Reached = e.origin, old.Rank(), old.World(), reached
		switch {
		case old.Err() == nil:
			c.State = stateWorking
		case old.Revoked() && old.CanShrink() == nil:
			c.State = stateRevoked
		}
	}
	return c
}

// exchangeMemberInfo publishes this rank's info and returns those of all ranks.
func exchangeMemberInfo(ctx context.Context, comm *collective.Communicator, mine memberInfo) ([]memberInfo, error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	blobs, err := comm.AllgatherBlobs(ctx, text)
	if err != nil {
		return nil, err
	}
	all := make([]memberInfo, len(blobs))
	for rank, b := range blobs {
		if err := json.Unmarshal(b, &all[rank]); err != nil {
			return nil, fmt.Errorf("the GPU information of rank %d: %w", rank, err)
		}
	}
	return all, nil
}

// newTopology derives the topology from the infos, seen from a rank.
func newTopology(all []memberInfo, rank int) (topology, error) {
	var l topology
	for r, c := range all {
		if c.Absent != "" {
			return l, fmt.Errorf("rank %d has no GPU: %w: %s", r, nccl.ErrUnavailable, c.Absent)
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
					return l, fmt.Errorf("ranks %d and %d have the same GPU, %s: %w: NCCL wants one for each", twin, r, all[r].GPU, nccl.ErrUnavailable)
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

// plan is how a node gets its NCCL communicator.
type plan string

const (
	planNone   plan = "alone"  // it needs none
	planKeep   plan = "kept"   // the old one, unchanged
	planShrink plan = "shrunk" // from the old one
	planNew    plan = "new"    // a new one
)

func planOf(node []memberInfo) plan {
	if len(node) == 1 && !node[0].Always {
		return planNone
	}
	same := true // all ranks are as they were
	for i, c := range node {
		switch {
		case c.State == "" || c.Origin != node[0].Origin || c.Way != node[0].Way:
			return planNew
		case i > 0 && c.Was <= node[i-1].Was:
			return planNew
		}
		same = same && c.State == stateWorking && c.Reached == node[0].Reached && c.Was == i && c.Of == len(node)
	}
	switch {
	case same:
		return planKeep
	case node[0].Way == nccl.ByRevoking, node[0].Way == nccl.ByShrinking && len(node) < node[0].Of:
		return planShrink
	}
	return planNew
}

// topology is the nodes of a generation in the order of their ranks.
type topology struct {
	first, size []int // of each node: its first rank, and how many it has
	node, local int   // this rank's node, and its place in it
	// rails is the size of the smallest node: that many ranks of every node communicate with their
	// peers on the other nodes, each with a part of the data.
	rails int
}

func (l *topology) add(first, size int) {
	if len(l.first) == 0 || size < l.rails {
		l.rails = size
	}
	l.first, l.size = append(l.first, first), append(l.size, size)
}

func (l *topology) nodes() int { return len(l.first) }

func (l *topology) world() int { return l.first[len(l.first)-1] + l.size[len(l.size)-1] }

func (l *topology) localSize() int { return l.size[l.node] }

func (l *topology) rank() int { return l.first[l.node] + l.local }

// onRail reports whether this rank communicates with other nodes.
func (l *topology) onRail() bool { return l.local < l.rails }

// railPeer is the rank of this rail on a node.
func (l *topology) railPeer(node int) int { return l.first[node] + l.local }

// railPeers are the ranks with which this rank reduces between nodes; only itself, if it has no
// rail.
func (l *topology) railPeers() []int {
	if !l.onRail() {
		return []int{l.rank()}
	}
	ranks := make([]int, l.nodes())
	for node := range ranks {
		ranks[node] = l.railPeer(node)
	}
	return ranks
}

func (l *topology) find(rank int) (node, local int) {
	for rank >= l.first[node]+l.size[node] {
		node++
	}
	return node, rank - l.first[node]
}

// partition divides n elements among the rails of a node: q for each, in order, and the rest for
// the last.
type partition struct{ n, q, of int }

// newPartition returns a partition. If n is not divisible, the parts begin at multiples of 16
// elements, which a GPU reads faster.
func newPartition(n, of int) partition {
	q := n / of
	if n%of != 0 {
		q &^= 15
	}
	return partition{n, q, of}
}

// part is the elements [lo, hi) of rail i; none for a rank without a rail.
func (s partition) part(i int) (lo, hi int) {
	switch {
	case i >= s.of:
		return 0, 0
	case i == s.of-1:
		return i * s.q, s.n
	}
	return i * s.q, (i + 1) * s.q
}

// even is the number of elements that are divided evenly.
func (s partition) even() int { return s.q * s.of }

// longest is the number of elements of the longest part.
func (s partition) longest() int { return s.n - s.q*(s.of-1) }
