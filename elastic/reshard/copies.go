package reshard

import "slices"

// Holders says which members keep a copy of each member's parts: copies others, on other nodes than
// its own and each other's as far as there are enough. nodes names the node of each member. Every
// member keeps as many copies as it has made.
//
//	nodes a a b b, one copy:    member 0 → 2, 1 → 3, 2 → 0, 3 → 1
func Holders(nodes []string, copies int) [][]int {
	n := len(nodes)
	order := byNode(nodes)
	at := func(i int) string { return nodes[order[i%n]] }
	var shifts []int
	for range min(copies, n-1) {
		best, most := 0, -1
		for shift := 1; shift < n; shift++ {
			if slices.Contains(shifts, shift) {
				continue
			}
			apart := 0 // the pairs that a new holder shares no node with
			for i := range n {
				if at(i+shift) != at(i) {
					apart += n // more than all the others together
				}
				for _, s := range shifts {
					if at(i+shift) != at(i+s) {
						apart++
					}
				}
			}
			if apart > most {
				best, most = shift, apart
			}
		}
		shifts = append(shifts, best)
	}
	holders := make([][]int, n)
	for i := range n {
		for _, s := range shifts {
			holders[order[i]] = append(holders[order[i]], order[(i+s)%n])
		}
	}
	return holders
}

// Opposite is Holders for members that leave as planned, who are often neighbours: the last ones of
// a smaller job, or those of a node. Of copies and parts in the order of the nodes any run of
// members may leave that is not longer than copies/(copies+1) of all.
//
//	four members, one copy:    member 0 → 2, 1 → 3, 2 → 0, 3 → 1
func Opposite(nodes []string, copies int) [][]int {
	n, order := len(nodes), byNode(nodes)
	holders := make([][]int, n)
	copies = min(copies, n-1)
	for i, m := range order {
		for k := 1; k <= copies; k++ {
			holders[m] = append(holders[m], order[(i+k*n/(copies+1))%n])
		}
	}
	return holders
}

// Near returns the pieces of which Opposite must keep as many copies before members leave as
// planned: those with an element that so few members have that a run of members may leave with all
// of it, and those that Rare returns. Replicas may be neighbours.
//
//	four members, one copy:    of what 0 and 2 have nothing is copied, and of what 2 and 3 have all
func Near(tensors []Tensor, has [][]Piece, nodes []string, copies int) [][]Piece {
	n := len(has)
	copies = min(copies, n-1)
	most := n * copies / (copies + 1) // members that may leave
	position := make([]int, n)
	for i, m := range byNode(nodes) {
		position[m] = i
	}
	return having(tensors, has, func(holders members) bool {
		if holders.count() <= copies {
			return true
		}
		at := make([]int, 0, n)
		for _, m := range holders.list() {
			at = append(at, position[m])
		}
		slices.Sort(at)
		gap := at[0] + n - at[len(at)-1] // the longest way from one to the next
		for i := range at[1:] {
			gap = max(gap, at[i+1]-at[i])
		}
		return n-gap+1 <= most
	})
}

// Missing returns the parts that nobody has.
func Missing(tensors []Tensor, has [][]Piece) []Piece {
	var missing []Piece
	for i, of := range byTensor(len(tensors), has) {
		g, sets := occupancy(tensors[i], of, len(has))
		for cell, holders := range sets {
			if holders.count() == 0 {
				missing = append(missing, Piece{Tensor: i, Box: g.box(cell, 1)})
			}
		}
	}
	return missing
}

// First gives each element to the lowest member that has it: what an initial state consists of.
func First(tensors []Tensor, has [][]Piece) [][]Piece {
	first := make([][]Piece, len(has))
	for i, of := range byTensor(len(tensors), has) {
		g, sets := occupancy(tensors[i], of, len(has))
		for cell, holders := range sets {
			if list := holders.list(); len(list) > 0 {
				first[list[0]] = append(first[list[0]], Piece{Tensor: i, Box: g.box(cell, 1)})
			}
		}
	}
	return first
}

// Rare returns the pieces that must be copied so that as many members may be lost as there shall be
// copies: those with an element that no more members than that have.
func Rare(tensors []Tensor, has [][]Piece, copies int) [][]Piece {
	return having(tensors, has, func(holders members) bool { return holders.count() <= copies })
}

// having returns the pieces with an element for whose holders f is true.
func having(tensors []Tensor, has [][]Piece, f func(holders members) bool) [][]Piece {
	some := make([][]Piece, len(has))
	for i, of := range byTensor(len(tensors), has) {
		g, sets := occupancy(tensors[i], of, len(has))
		is := make([]bool, len(sets))
		for cell, holders := range sets {
			is[cell] = holders.count() > 0 && f(holders)
		}
		for _, b := range of {
			found := false
			g.cover(b.Box, func(cell int) { found = found || is[cell] })
			if found {
				some[b.member] = append(some[b.member], Piece{Tensor: i, Box: b.Box})
			}
		}
	}
	return some
}

// occupancy divides a tensor, and returns which members have each cell.
func occupancy(t Tensor, of []owned, world int) (grid, []members) {
	g := newGrid(t.Shape, of)
	return g, g.members(of, world)
}

// Repair says what to send so that as many members may be lost as there shall be copies, where
// fewer have an element than that needs: each such part from the lowest member that has it to
// members that have not, on other nodes than those that have as far as there are enough, and
// otherwise to those that got least.
//
//	members 0 to 2 of what were four with one copy each, at the next member: member 3, which had
//	copies of the parts of 2, is gone, and member 0 has those of 3
//
//	has       0: A, D     1: B, A     2: C, B
//	moves     C from 2 to 0 or 1; D from 0 to 1 or 2
func Repair(tensors []Tensor, has [][]Piece, nodes []string, copies, limit int) []Move {
	got := make([]int, len(has))
	var moves []Move
	for i, of := range byTensor(len(tensors), has) {
		g, sets := occupancy(tensors[i], of, len(has))
		for cell, holders := range sets {
			have := holders.list()
			for wanted := min(copies+1, len(has)) - len(have); wanted > 0 && len(have) > 0; wanted-- {
				to := newHolder(have, nodes, got)
				stripes(g.box(cell, 1), max(1, limit/tensors[i].Width), func(b Box) {
					got[to] += b.Elements() * tensors[i].Width
					moves = append(moves, Move{Piece: Piece{Tensor: i, Box: b}, Chain: []int{have[0], to}})
				})
				have = append(have, to)
			}
		}
	}
	return moves
}

// Handover says what members who leave send to those who stay, so that these have everything: each
// part that none of them has, from the lowest member that has it, to whom Deal gives it. If all
// leave, the lowest stays.
//
//	members 0 to 3 with rows 0-2, 3-5, 6-8 and 9-11, of which 1 leaves
//
//	moves     row 3 from 1 to 0; rows 4-5 from 1 to 2
func Handover(tensors []Tensor, has [][]Piece, leaving []bool, limit int) []Move {
	var stay []int
	for m := range has {
		if !leaving[m] {
			stay = append(stay, m)
		}
	}
	if len(stay) == 0 {
		stay = []int{0}
	}
	var moves []Move
	for i, of := range byTensor(len(tensors), has) {
		g, sets := occupancy(tensors[i], of, len(has))
		for cell, holders := range sets {
			have := holders.list()
			if len(have) == 0 || slices.ContainsFunc(have, func(m int) bool { return slices.Contains(stay, m) }) {
				continue
			}
			for _, share := range Deal(g.box(cell, 1), have[0], len(has), len(stay)) {
				stripes(share.Box, max(1, limit/tensors[i].Width), func(b Box) {
					moves = append(moves, Move{Piece: Piece{Tensor: i, Box: b}, Chain: []int{have[0], stay[share.Member]}})
				})
			}
		}
	}
	return moves
}

// newHolder chooses one more holder beside those that have something.
func newHolder(have []int, nodes []string, got []int) int {
	best := -1
	apart := func(m int) bool {
		return !slices.ContainsFunc(have, func(h int) bool { return nodes[h] == nodes[m] })
	}
	for m := range nodes {
		switch {
		case slices.Contains(have, m):
		case best < 0, apart(m) && !apart(best), apart(m) == apart(best) && got[m] < got[best]:
			best = m
		}
	}
	return best
}
