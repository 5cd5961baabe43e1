package reshard

import "slices"

// Groups divides the members into groups that keep parity for each other: of at least k+1 members
// if there are so many, of all of them if there are fewer, and otherwise as small and as equal as
// possible. Members of one node are in different groups as far as there are enough; so the loss of
// a node with at most as many members as there are groups is one member for each group.
//
// The parts of a member are cut into as many stripes as its group has other members (Stripes), and
// each of those keeps the XOR of one stripe of each member but itself, which is a k-th of a copy:
//
//	            parts       keeps
//	member 0    a1 a2 a3    b0 ^ c0 ^ d0
//	member 1    b0 b2 b3    a1 ^ c1 ^ d1
//	member 2    c0 c1 c3    a2 ^ b2 ^ d2
//	member 3    d0 d1 d2    a3 ^ b3 ^ c3
//
// Without member 2, member 0 has c0 again from what it keeps, b0 and d0; member 1 has c1, and
// member 3 has c3.
func Groups(nodes []string, k int) [][]int {
	groups := make([][]int, max(1, len(nodes)/(k+1)))
	for i, m := range byNode(nodes) {
		groups[i%len(groups)] = append(groups[i%len(groups)], m)
	}
	return groups
}

// byNode returns the members in the order of their nodes.
func byNode(nodes []string) []int {
	order := make([]int, len(nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return slices.Index(nodes, nodes[a]) - slices.Index(nodes, nodes[b]) })
	return order
}

// Stripes cuts the elements of pieces, in their order, into n stripes of about the same size: the
// bytes of one may exceed an n-th of all by an element. The elements of a stripe follow each other
// in the memory of the pieces.
func Stripes(tensors []Tensor, pieces []Piece, n int) [][]Piece {
	total := 0
	for _, p := range pieces {
		total += p.Box.Elements() * tensors[p.Tensor].Width
	}
	all := make([][]Piece, n)
	stripe, before := 0, 0
	for _, p := range pieces {
		width, elements := tensors[p.Tensor].Width, p.Box.Elements()
		for done := 0; done < elements; {
			end := elements
			if stripe < n-1 {
				left := total*(stripe+1)/n - before // bytes of the piece until the stripe is full
				end = min(max(done, (left+width-1)/width), elements)
			}
			run(p.Box, done, end, func(b Box) { all[stripe] = append(all[stripe], Piece{Tensor: p.Tensor, Box: b}) })
			if done = end; done < elements {
				stripe++
			}
		}
		before += elements * width
	}
	return all
}

// StripeFor is the number of the stripe of the member at one position of a group that is in the
// parity which the one at another position keeps.
func StripeFor(of, keeper int) int {
	if keeper > of {
		return keeper - 1
	}
	return keeper
}

// Group is what a group has of one commit.
type Group struct {
	Members []int     // by position; -1 = lost
	Pieces  [][]Piece // by position: what of the parts is in the parity, in this order
	Kept    []bool    // by position: the parity that this one keeps is complete
}

// Rebuilt returns, by position, what each of the others can rebuild of what the one at a position
// had, which is lost or may be.
func (g Group) Rebuilt(tensors []Tensor, lost int) [][]Piece {
	n := len(g.Members) - 1
	pieces := make([][]Piece, n+1)
	if n == 0 {
		return pieces
	}
	missing := map[int][][]Piece{} // the stripes of the others that are lost
	for of, m := range g.Members {
		if m < 0 && of != lost {
			missing[of] = Stripes(tensors, g.Pieces[of], n)
		}
	}
	for stripe, p := range Stripes(tensors, g.Pieces[lost], n) {
		keeper := stripe
		if keeper >= lost {
			keeper++
		}
		can := g.Members[keeper] >= 0 && g.Kept[keeper]
		for of, stripes := range missing {
			can = can && len(stripes[StripeFor(of, keeper)]) == 0
		}
		if can {
			pieces[keeper] = p
		}
	}
	return pieces
}

// run calls f with the boxes that the elements of a box from one on to before another consist of,
// in the row-major order of the box.
//
//	elements 3 to 11 of [0:4, 0:4]:    [0:1, 3:4] [1:2, 0:4] [2:3, 0:3]
func run(b Box, from, to int, f func(Box)) {
	if from >= to {
		return
	}
	if from == 0 && to == b.Elements() {
		f(b)
		return
	}
	d := slices.IndexFunc(b.Size, func(n int) bool { return n > 1 })
	row := b.Elements() / b.Size[d]
	rows := func(from, to int) Box {
		s := Box{Offset: slices.Clone(b.Offset), Size: slices.Clone(b.Size)}
		s.Offset[d], s.Size[d] = b.Offset[d]+from, to-from
		return s
	}
	first, last := (from+row-1)/row, to/row // the rows that are whole
	if first > last {
		run(rows(last, first), from-last*row, to-last*row, f)
		return
	}
	run(rows(first-1, first), from-(first-1)*row, row, f)
	if first < last {
		f(rows(first, last))
	}
	run(rows(last, last+1), 0, to-last*row, f)
}
