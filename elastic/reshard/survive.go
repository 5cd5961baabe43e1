package reshard

import (
	"slices"
)

// Survives is the largest number of members that may be lost at once, whichever they are, so that
// the others still have all of the tensors, or can rebuild what they lack from parity. It is one
// less than the fewest losses that take all there is of an element: all who have it, and one of
// each list of members that can rebuild it together. It is -1 if an element is lost already.
//
// has is what each member has of a commit, its own and what it keeps for others, and groups what
// those that keep parity have of it. With nodes, the name of the node of each member, it is the
// number of nodes that may be lost.
//
//	nodes a a b b, one copy:    member 0 → 2, 1 → 3, 2 → 0, 3 → 1: one member, and one node
func Survives(tensors []Tensor, has [][]Piece, groups []Group, nodes []string) int {
	with, parties := parties(len(has), nodes)
	ways := waysOf(tensors, groups)
	rebuilt := make([][]Piece, len(ways))
	for i, w := range ways {
		rebuilt[i] = w.pieces
	}
	hasOf, rebuiltOf := byTensor(len(tensors), has), byTensor(len(tensors), rebuilt)
	least, lost := parties, make([]bool, parties)
	for i, t := range tensors {
		g := newGrid(t.Shape, hasOf[i], rebuiltOf[i])
		holders := g.members(hasOf[i], len(has))
		can := make([][]int, g.cells) // by cell: the ways to rebuild it
		for _, b := range rebuiltOf[i] {
			g.cover(b.Box, func(cell int) { can[cell] = append(can[cell], b.member) })
		}
		for cell, set := range holders {
			n, list := 0, set.list()
			for _, m := range list {
				if !lost[with[m]] {
					lost[with[m]], n = true, n+1
				}
			}
			for more := 0; n+more < least; more++ {
				if breaks(ways, can[cell], with, lost, more) {
					least = n + more
				}
			}
			for _, m := range list {
				lost[with[m]] = false
			}
		}
	}
	return least - 1
}

// parties numbers what is lost at once: members, or nodes.
func parties(world int, nodes []string) (of []int, n int) {
	of = make([]int, world)
	number := map[string]int{}
	for m := range of {
		if nodes == nil {
			of[m], n = m, n+1
			continue
		}
		i, known := number[nodes[m]]
		if !known {
			i, n = n, n+1
			number[nodes[m]] = i
		}
		of[m] = i
	}
	return of, n
}

// way is one way to rebuild something: by these members together.
type way struct {
	members []int
	pieces  []Piece
}

// waysOf are the ways to rebuild what the members of groups had.
func waysOf(tensors []Tensor, groups []Group) (ways []way) {
	for _, g := range groups {
		if len(g.Members) < 2 {
			continue
		}
		stripes := make([][][]Piece, len(g.Members))
		for of := range g.Members {
			stripes[of] = Stripes(tensors, g.Pieces[of], len(g.Members)-1)
		}
		for of := range g.Members {
			for keeper, pieces := range g.Rebuilt(tensors, of) {
				if len(pieces) == 0 {
					continue
				}
				w := way{members: []int{g.Members[keeper]}, pieces: pieces}
				for o, m := range g.Members {
					if m >= 0 && o != of && o != keeper && len(stripes[o][StripeFor(o, keeper)]) > 0 {
						w.members = append(w.members, m)
					}
				}
				ways = append(ways, w)
			}
		}
	}
	return ways
}

// breaks reports whether so many losses more leave none of the ways.
func breaks(ways []way, left, with []int, lost []bool, more int) bool {
	i := slices.IndexFunc(left, func(i int) bool {
		return !slices.ContainsFunc(ways[i].members, func(m int) bool { return lost[with[m]] })
	})
	if i < 0 || more == 0 {
		return i < 0
	}
	for _, m := range ways[left[i]].members {
		lost[with[m]] = true
		broken := breaks(ways, left[i+1:], with, lost, more-1)
		lost[with[m]] = false
		if broken {
			return true
		}
	}
	return false
}

// Protected are the groups (Groups) when all parity of these pieces of each member is complete.
func Protected(groups [][]int, pieces [][]Piece) []Group {
	all := make([]Group, len(groups))
	for i, members := range groups {
		all[i] = Group{Members: slices.Clone(members), Kept: slices.Repeat([]bool{true}, len(members))}
		for _, m := range members {
			all[i].Pieces = append(all[i].Pieces, pieces[m])
		}
	}
	return all
}
