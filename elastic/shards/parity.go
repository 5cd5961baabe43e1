package shards

import (
	"context"
	"crypto/subtle"
	"slices"

	"github.com/regroup-io/regroup/elastic/reshard"
)

// group is the group in which a member keeps parity in one generation (reshard.Groups).
type group struct {
	generation uint64
	ranks      []int // of its members in that generation, by position
	at         int   // the position of this member
	table      *table
	pieces     [][]reshard.Piece // by position: what is in the parity
	bounds     [][]int           // by position: where its stripes begin, and the last one ends
}

// newGroup returns the group of this member; pieces are what each member has that parity protects,
// by rank.
func newGroup(c Communicator, groups [][]int, t *table, pieces [][]reshard.Piece) *group {
	g := &group{generation: c.Generation(), table: t}
	for _, ranks := range groups {
		if at := slices.Index(ranks, c.Rank()); at >= 0 {
			g.ranks, g.at = ranks, at
		}
	}
	if len(g.ranks) < 2 {
		return g
	}
	for _, rank := range g.ranks {
		bounds := []int{0}
		for _, stripe := range reshard.Stripes(t.tensors, pieces[rank], len(g.ranks)-1) {
			bounds = append(bounds, bounds[len(bounds)-1]+t.bytes(stripe))
		}
		g.pieces, g.bounds = append(g.pieces, pieces[rank]), append(g.bounds, bounds)
	}
	return g
}

// own are the parts of this member that are in the parity.
func (g *group) own() []part {
	if len(g.ranks) < 2 {
		return nil
	}
	return g.table.parts(g.pieces[g.at])
}

// stripe is where in the parts of one position the stripe is whose parity another keeps.
func (g *group) stripe(of, keeper int) (from, to int) {
	i := reshard.StripeFor(of, keeper)
	return g.bounds[of][i], g.bounds[of][i+1]
}

// protection is this member's part in the parity of a commit.
type protection struct {
	*group
	commit Commit
	own    [][]byte // this member's parts, as of the commit
	parity []byte   // what it keeps for the others
	kept   bool     // it is complete
}

// protect begins to make the parity of a commit, of what own has when ready has returned. Each
// member sends each other of its group a stripe of its parts, and of what it receives it keeps the
// XOR.
func (s *State) protect(ctx context.Context, c Communicator, g *group, commit Commit, own [][]byte, ready func() error) {
	if len(g.ranks) < 2 {
		return
	}
	k := &copying{}
	s.copying = k
	p := &protection{group: g, commit: commit, own: own}
	s.protections = append(s.protections, p)
	size := 0
	var sources []source
	for i := range g.ranks[1:] { // from the next one on, so that not all wait for the same one
		of := (g.at + 1 + i) % len(g.ranks)
		from, to := g.stripe(of, g.at)
		size = max(size, to-from)
		sources = append(sources, source{g.ranks[of], to - from})
		from, to = g.stripe(g.at, of)
		k.start(func() error {
			if err := ready(); err != nil {
				return err
			}
			return sendRange(ctx, c, g.ranks[of], own, from, to, s.most)
		})
	}
	p.parity = s.memory.Get(size)
	k.start(func() error {
		clear(p.parity)
		if err := recvXOR(ctx, c, sources, p.parity, s.most); err != nil {
			return err
		}
		p.kept = true // read after Settle
		return nil
	})
}

// dropIncomplete forgets parity that was not completed. The others may have theirs, and need what
// this member has of the commit.
func (s *State) dropIncomplete() {
	for _, p := range s.protections {
		if !p.kept && p.parity != nil {
			s.memory.Put(p.parity)
			p.parity = nil
		}
	}
}

// source is a member that sends so many bytes.
type source struct{ rank, bytes int }

// sendRange sends a range of what memory has, most bytes at a time.
func sendRange(ctx context.Context, c Communicator, to int, memory [][]byte, from, end, most int) error {
	var scratch []byte
	for ; from < end; from += most {
		if err := sendHashed(ctx, c, to, cut(memory, from, min(from+most, end), &scratch)); err != nil {
			return err
		}
	}
	return nil
}

// cut returns a range of what memory has: as it is if it is in one piece of that, else in scratch.
func cut(memory [][]byte, from, end int, scratch *[]byte) []byte {
	b, size := (*scratch)[:0], end-from
	for _, m := range memory {
		if lo, hi := max(from, 0), min(end, len(m)); lo < hi {
			if hi-lo == size {
				return m[lo:hi]
			}
			b = append(b, m[lo:hi]...)
		}
		from, end = from-len(m), end-len(m)
	}
	*scratch = b
	return b
}

// recvXOR receives from each source, most bytes at a time, and adds what it sends to sum by XOR.
func recvXOR(ctx context.Context, c Communicator, sources []source, sum []byte, most int) error {
	scratch := make([]byte, min(most, len(sum)))
	for at := 0; at < len(sum); at += most {
		for _, from := range sources {
			n := min(most, from.bytes-at)
			if n <= 0 {
				continue
			}
			if err := recvHashed(ctx, c, from.rank, scratch[:n]); err != nil {
				return err
			}
			subtle.XORBytes(sum[at:], sum[at:at+n], scratch[:n])
		}
	}
	return nil
}

// protectAgain makes parity of the commit to which the members have returned, where they could not
// lose one more: of what each of them alone has of it now.
func (s *State) protectAgain(ctx context.Context, c Communicator, t *table, has [][]reshard.Piece, commit Commit) {
	alone := reshard.Rare(t.tensors, has, 1)
	from := s.newTransfer(c, t, commit, true).from
	var own [][]byte
	for _, piece := range alone[c.Rank()] {
		i := slices.IndexFunc(from[piece.Tensor], func(p part) bool { return p.box.Equal(piece.Box) })
		own = append(own, from[piece.Tensor][i].memory) // it is what this member has offered
	}
	s.settled = better(s.holds, s.protected(t, has))
	s.protect(ctx, c, newGroup(c, reshard.Groups(s.peers.nodes, s.options.Parity), t, alone), commit, own, func() error { return nil })
}
