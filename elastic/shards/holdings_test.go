package shards

import (
	"math/bits"
	"slices"

	"github.com/regroup-io/regroup/elastic/reshard"
)

// holdings are what states have of a commit, byte by byte. They know nothing of the planner.
type holdings struct {
	known  [][]bool // by state: the bytes of the content that are in its sets
	parity []equation
}

// equation is the parity that one state keeps: the XOR of ranges of the content. One of them can be
// computed from it and from the others, which those have who are in the group.
type equation struct {
	keeper int // the state
	ranges []span
}

// span is what one member of the group has in a parity.
type span struct {
	owner  int   // the state; -1 = it is lost
	places []int // of the bytes in the content
}

func holdingsOf(states []*State, c Commit) *holdings {
	h := &holdings{}
	for keeper, s := range states {
		known := make([]bool, starts[len(starts)-1])
		for _, x := range s.sets {
			if x.commit != c {
				continue
			}
			for _, p := range x.parts {
				p.each(func(at, _, n int) {
					for k := range n {
						known[at+k] = true
					}
				})
			}
		}
		h.known = append(h.known, known)
		for _, p := range s.protections {
			if p.commit == c && p.kept {
				h.parity = append(h.parity, equation{keeper, p.ranges(states)})
			}
		}
	}
	return h
}

// ranges are what is in the parity that a state keeps.
func (p *protection) ranges(states []*State) (list []span) {
	for of, pieces := range p.pieces {
		if of == p.at {
			continue
		}
		x := span{owner: slices.IndexFunc(states, func(s *State) bool {
			return slices.ContainsFunc(s.protections, func(o *protection) bool {
				return o.commit == p.commit && o.generation == p.generation && slices.Equal(o.ranks, p.ranks) && o.at == of
			})
		})}
		var places []int
		for _, part := range p.table.parts(pieces) {
			part.each(func(at, _, n int) {
				for k := range n {
					places = append(places, at+k)
				}
			})
		}
		from, to := p.stripe(of, p.at)
		if x.places = places[from:to]; from < to {
			list = append(list, x)
		}
	}
	return list
}

// whole reports whether the states that are not lost have all of the commit, or can compute it: one
// of the ranges in a parity, if all others are with those who made it. Bit i of lost is set for
// state i.
func (h *holdings) whole(lost int) bool {
	gone := func(state int) bool { return state < 0 || lost>>state&1 == 1 }
	all := make([]bool, starts[len(starts)-1])
	for i, known := range h.known {
		if gone(i) {
			continue
		}
		for at, is := range known {
			all[at] = all[at] || is
		}
	}
	for _, e := range h.parity {
		if gone(e.keeper) {
			continue
		}
		for i, x := range e.ranges {
			others := slices.Delete(slices.Clone(e.ranges), i, i+1)
			if !slices.ContainsFunc(others, func(o span) bool { return gone(o.owner) }) {
				for _, at := range x.places {
					all[at] = true
				}
			}
		}
	}
	return !slices.Contains(all, false)
}

// table says for each set of losses whether the commit survives it.
func (h *holdings) table() []bool {
	t := make([]bool, 1<<len(h.known))
	for lost := range t {
		t[lost] = h.whole(lost)
	}
	return t
}

// fewest is the smallest number of losses that a table says are not survived, of members or of
// nodes: those of a node are lost together.
func fewest(table []bool, nodes []string) int {
	names := slices.Compact(slices.Sorted(slices.Values(nodes)))
	n := len(names)
	for set := range 1 << len(names) {
		lost := 0
		for m, node := range nodes {
			if i, _ := slices.BinarySearch(names, node); set>>i&1 == 1 {
				lost |= 1 << m
			}
		}
		if !table[lost] {
			n = min(n, bits.OnesCount(uint(set)))
		}
	}
	return n
}

// planned is what states have of a commit in the words of the planner.
func planned(states []*State, c Commit) (*table, [][]reshard.Piece, []reshard.Group) {
	tensors := [][]reshard.Tensor{simulatedTensors}
	t, err := newTable(tensors)
	if err != nil {
		panic(err)
	}
	has := make([][]reshard.Piece, len(states))
	groups := map[*group]*reshard.Group{}
	var order []*group
	for m, s := range states {
		for _, x := range s.sets {
			if x.commit == c {
				has[m] = append(has[m], t.pieces(x.parts)...)
			}
		}
		for _, p := range s.protections {
			if p.commit != c {
				continue
			}
			i := slices.IndexFunc(order, func(g *group) bool {
				return g.generation == p.generation && slices.Equal(g.ranks, p.ranks)
			})
			if i < 0 {
				i = len(order)
				order = append(order, p.group)
				g := &reshard.Group{Members: slices.Repeat([]int{-1}, len(p.ranks)), Kept: make([]bool, len(p.ranks))}
				for _, pieces := range p.pieces {
					g.Pieces = append(g.Pieces, t.pieces(p.table.parts(pieces)))
				}
				groups[p.group] = g
			}
			g := groups[order[i]]
			g.Members[p.at], g.Kept[p.at] = m, p.kept
		}
	}
	var list []reshard.Group
	for _, g := range order {
		list = append(list, *groups[g])
	}
	return t, has, list
}
