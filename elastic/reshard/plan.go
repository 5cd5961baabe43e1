package reshard

import (
	"cmp"
	"fmt"
	"slices"
)

// Piece is a box of one of several tensors.
type Piece struct {
	Tensor int // its index
	Box    Box
}

// Move sends a piece along a chain of members: the first has it, each of the others lacks it, and
// forwards it to the next. It is within one piece that the first has, and within one that each of
// the others needs.
type Move struct {
	Piece
	Chain []int
}

// MissingError says that no member has a part of a tensor that one needs.
type MissingError struct {
	Tensor string
	Box    Box
}

func (e *MissingError) Error() string { return fmt.Sprintf("nobody has %s%v", e.Tensor, e.Box) }

// MaxSources is the number of members that share the sending of what others lack, if that are
// fewer: with more connections a member would receive no faster.
const MaxSources = 8

// Plan says how all members get what they need. has and needs are by member; several members may
// have the same part, or need it. limit is the number of bytes that one move may have, at least one
// element. The moves are in the order of their tensors and offsets, and each pair of members sends
// and receives its part of them in this order.
//
// What every member receives is what it needs and does not have, once. No other plan moves less.
func Plan(tensors []Tensor, has, needs [][]Piece, limit int) ([]Move, error) {
	p := planner{sent: make([]int, len(has)), forwarded: make([]int, len(has))}
	hasOf, needsOf := byTensor(len(tensors), has), byTensor(len(tensors), needs)
	for i, t := range tensors {
		if err := p.lacking(i, t, hasOf[i], needsOf[i], limit); err != nil {
			return nil, err
		}
	}
	// Who has little choice chooses first.
	slices.SortStableFunc(p.moves, func(a, b unplanned) int { return cmp.Compare(len(a.holders), len(b.holders)) })
	moves := make([]Move, len(p.moves))
	for i, u := range p.moves {
		moves[i] = Move{Piece: u.Piece, Chain: p.chain(u, u.Box.Elements()*tensors[u.Tensor].Width)}
	}
	slices.SortStableFunc(moves, func(a, b Move) int {
		return cmp.Or(cmp.Compare(a.Tensor, b.Tensor), slices.Compare(a.Box.Offset, b.Box.Offset))
	})
	return moves, nil
}

// owned is a box of a member.
type owned struct {
	member int
	Box
}

func byTensor(tensors int, pieces [][]Piece) [][]owned {
	of := make([][]owned, tensors)
	for m, list := range pieces {
		for _, p := range list {
			of[p.Tensor] = append(of[p.Tensor], owned{m, p.Box})
		}
	}
	return of
}

// numbered gives each box a member of its own.
func numbered(lists ...[]owned) []owned {
	all := slices.Concat(lists...)
	for i := range all {
		all[i].member = i
	}
	return all
}

type planner struct {
	moves           []unplanned
	sent, forwarded []int // bytes, by member
}

// unplanned is a move without a chain.
type unplanned struct {
	Piece
	holders, lacking []int
}

// lacking finds the parts of a tensor that members lack.
func (p *planner) lacking(tensor int, t Tensor, has, needs []owned, limit int) error {
	g := newGrid(t.Shape, has, needs)
	holders, lacking := g.members(has, len(p.sent)), g.members(needs, len(p.sent))
	for cell := range lacking {
		lacking[cell].remove(holders[cell])
	}
	// Neighbours that are in the same boxes are moved as one.
	line, boxes := g.line(), g.members(numbered(has, needs), len(has)+len(needs))
	for cell := 0; cell < g.cells; {
		n := 1
		for end := cell - cell%line + line; cell+n < end && slices.Equal(boxes[cell], boxes[cell+n]); {
			n++
		}
		if lacking[cell].count() > 0 {
			b := g.box(cell, n)
			u := unplanned{holders: holders[cell].list(), lacking: lacking[cell].list()}
			if len(u.holders) == 0 {
				return &MissingError{Tensor: t.Name, Box: b}
			}
			u.holders = spread(u.holders, max(MaxSources, len(u.lacking)))
			stripes(b, max(1, limit/t.Width), func(s Box) {
				u.Piece = Piece{Tensor: tensor, Box: s}
				p.moves = append(p.moves, u)
			})
		}
		cell += n
	}
	return nil
}

// spread returns at most n of the members, evenly: neighbours share a machine and its network.
func spread(all []int, n int) []int {
	n = min(n, len(all))
	some := make([]int, n)
	for i := range some {
		some[i] = all[i*len(all)/n]
	}
	return some
}

// chain begins with the holder that has sent the least so far. Of the others each forwards what it
// receives, except for the last: the one that has forwarded the most.
func (p *planner) chain(u unplanned, bytes int) []int {
	source := slices.MinFunc(u.holders, func(a, b int) int { return cmp.Compare(p.sent[a], p.sent[b]) })
	p.sent[source] += bytes
	rest := slices.Clone(u.lacking)
	slices.SortStableFunc(rest, func(a, b int) int { return cmp.Compare(p.forwarded[a], p.forwarded[b]) })
	for _, m := range rest[:len(rest)-1] {
		p.forwarded[m] += bytes
	}
	return append([]int{source}, rest...)
}
