package reshard

import "slices"

// Copy is what a member keeps of the pieces of another.
type Copy struct {
	Holder int
	Pieces []Piece
}

// Copies says which copies to keep of these pieces of each member, by that member: each element at
// as many others as there shall be copies, on nodes as with Holders. Each piece is cut in two, the
// first half for members before its own and the other one for members after it. So when one is lost
// and the tensors are dealt anew in the same order, what the others need of its part is where it is
// needed, or near.
//
//	members 0 to 3 with rows 0-3, 4-7, 8-11 and 12-15, one copy:
//	0 keeps 4-5 and 14-15, 1 keeps 2-3 and 8-9, 2 keeps 6-7 and 12-13, 3 keeps 0-1 and 10-11
//
// If 3 is lost, 0, 1 and 2 need rows 0-5, 6-11 and 12-15. They lack 10-11 and 14-15; if each had a
// copy of all that the one before it has, they would lack ten rows.
func Copies(pieces [][]Piece, nodes []string, copies int) [][]Copy {
	after := Holders(nodes, copies)
	before := make([][]int, len(after))
	for m, holders := range after {
		for _, h := range holders {
			before[h] = append(before[h], m)
		}
	}
	if fewestNodes(before, nodes) < fewestNodes(after, nodes) {
		before = after
	}
	all := make([][]Copy, len(pieces))
	for m := range pieces {
		first, second := halves(pieces[m])
		for _, h := range after[m] {
			if slices.Contains(before[m], h) {
				all[m] = append(all[m], Copy{h, pieces[m]})
			} else if len(second) > 0 {
				all[m] = append(all[m], Copy{h, second})
			}
		}
		for _, h := range before[m] {
			if !slices.Contains(after[m], h) && len(first) > 0 {
				all[m] = append(all[m], Copy{h, first})
			}
		}
	}
	return all
}

// CopiesAt says that these members keep all of the pieces of each.
func CopiesAt(holders [][]int, pieces [][]Piece) [][]Copy {
	all := make([][]Copy, len(pieces))
	for m, list := range holders {
		for _, h := range list {
			all[m] = append(all[m], Copy{h, pieces[m]})
		}
	}
	return all
}

// Copied is what the members have when those who keep copies have received them.
func Copied(has [][]Piece, copies [][]Copy) [][]Piece {
	all := make([][]Piece, len(has))
	for m := range has {
		all[m] = slices.Clone(has[m])
	}
	for _, list := range copies {
		for _, c := range list {
			all[c.Holder] = append(all[c.Holder], c.Pieces...)
		}
	}
	return all
}

// fewestNodes is on how many nodes at least a member and those that keep its copies are.
func fewestNodes(holders [][]int, nodes []string) int {
	fewest := len(nodes)
	for m, list := range holders {
		of := []string{nodes[m]}
		for _, h := range list {
			of = append(of, nodes[h])
		}
		slices.Sort(of)
		fewest = min(fewest, len(slices.Compact(of)))
	}
	return fewest
}

// halves cuts pieces along the first dimension in which they can be cut, so that both halves are
// contiguous. Those of one element are in the one half and in the other in turn.
func halves(pieces []Piece) (first, second []Piece) {
	single := 0
	for _, p := range pieces {
		d := slices.IndexFunc(p.Box.Size, func(n int) bool { return n > 1 })
		if d < 0 {
			if single++; single%2 == 1 {
				first = append(first, p)
			} else {
				second = append(second, p)
			}
			continue
		}
		n := p.Box.Size[d] / 2
		first = append(first, p.rows(d, 0, n))
		second = append(second, p.rows(d, n, p.Box.Size[d]))
	}
	return first, second
}

// rows are those from begin until before end of a piece, in one dimension.
func (p Piece) rows(d, begin, end int) Piece {
	b := Box{Offset: slices.Clone(p.Box.Offset), Size: slices.Clone(p.Box.Size)}
	b.Offset[d], b.Size[d] = b.Offset[d]+begin, end-begin
	return Piece{Tensor: p.Tensor, Box: b}
}
