package reshard

import "slices"

// Once gives each element that a member has to one of those who have it: the one that has got least
// so far. That is who writes what.
func Once(tensors []Tensor, has [][]Piece) [][]Piece {
	once, got := make([][]Piece, len(has)), make([]int, len(has))
	for i, of := range byTensor(len(tensors), has) {
		g, sets := occupancy(tensors[i], of, len(has))
		for cell, holders := range sets {
			list := holders.list()
			if len(list) == 0 {
				continue
			}
			to := slices.MinFunc(list, func(a, b int) int { return got[a] - got[b] })
			p := Piece{Tensor: i, Box: g.box(cell, 1)}
			got[to] += p.Box.Elements() * tensors[i].Width
			once[to] = append(once[to], p)
		}
	}
	return once
}

// Share is a part of a box, for a member.
type Share struct {
	Member int
	Box    Box
}

// Deal divides what member k of a former world of from had, among a world of to: so that each
// member gets as much of all boxes, and what it needs anyway if the tensors are dealt to the new
// members in the same order. A box is cut along its first dimension.
//
//	member 1 of 2 with rows 6-11, dealt to 3:    1 gets rows 6-7, 2 rows 8-11
func Deal(b Box, k, from, to int) []Share {
	if b.Elements() == 0 {
		return nil
	}
	d := slices.IndexFunc(b.Size, func(n int) bool { return n > 1 })
	first := k * to / from // the member in whose range the box begins
	if d < 0 {
		return []Share{{first, b}}
	}
	var shares []Share
	begin := 0
	for m := first; begin < b.Size[d]; m++ {
		end := min(b.Size[d], b.Size[d]*((m+1)*from-k*to)/to) // where the range of m ends in the box
		if end > begin {
			s := Box{Offset: slices.Clone(b.Offset), Size: slices.Clone(b.Size)}
			s.Offset[d], s.Size[d] = b.Offset[d]+begin, end-begin
			shares = append(shares, Share{m, s})
			begin = end
		}
	}
	return shares
}
