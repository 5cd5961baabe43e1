package reshard

import (
	"math/bits"
	"slices"
)

// members is a set of members: bit m%64 of word m/64 is set for member m.
type members []uint64

func (s members) add(m int) { s[m/64] |= 1 << (m % 64) }

func (s members) remove(o members) {
	for i := range s {
		s[i] &^= o[i]
	}
}

func (s members) count() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

func (s members) list() []int {
	var all []int
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			all = append(all, i*64+bits.TrailingZeros64(w))
		}
	}
	return all
}

// grid divides a tensor at the edges of all boxes, so that each of its cells is in a box as a
// whole, or not at all.
type grid struct {
	cuts  [][]int // by dimension, ascending, from 0 to the size of the dimension
	cells int
}

func newGrid(shape []int, boxes ...[]owned) grid {
	g := grid{cuts: make([][]int, len(shape)), cells: 1}
	for d, n := range shape {
		g.cuts[d] = []int{0, n}
	}
	for _, b := range slices.Concat(boxes...) {
		for d := range b.Offset {
			g.cuts[d] = append(g.cuts[d], b.Offset[d], b.Offset[d]+b.Size[d])
		}
	}
	for d := range g.cuts {
		slices.Sort(g.cuts[d])
		g.cuts[d] = slices.Compact(g.cuts[d])
		g.cells *= len(g.cuts[d]) - 1
	}
	return g
}

// members returns which of a world of members have each cell.
func (g grid) members(of []owned, world int) []members {
	words := (world + 63) / 64
	all, sets := make([]uint64, g.cells*words), make([]members, g.cells)
	for cell := range sets {
		sets[cell] = all[cell*words : (cell+1)*words]
	}
	for _, b := range of {
		g.cover(b.Box, func(cell int) { sets[cell].add(b.member) })
	}
	return sets
}

// cover calls f with the number of each cell in a box.
func (g grid) cover(b Box, f func(cell int)) {
	if b.Elements() == 0 {
		return
	}
	g.walk(b, 0, 0, f)
}

func (g grid) walk(b Box, d, cell int, f func(cell int)) {
	if d == len(g.cuts) {
		f(cell)
		return
	}
	cuts := g.cuts[d]
	lo, _ := slices.BinarySearch(cuts, b.Offset[d])
	hi, _ := slices.BinarySearch(cuts, b.Offset[d]+b.Size[d])
	for i := lo; i < hi; i++ {
		g.walk(b, d+1, cell*(len(cuts)-1)+i, f)
	}
}

// box returns the elements of n cells from one on, which are neighbours along the last dimension
// that has several.
func (g grid) box(cell, n int) Box {
	b := Box{Offset: make([]int, len(g.cuts)), Size: make([]int, len(g.cuts))}
	first := true
	for d := len(g.cuts) - 1; d >= 0; d-- {
		cuts := g.cuts[d]
		k := len(cuts) - 1
		i := cell % k
		cell /= k
		end := i + 1
		if k > 1 && first {
			first, end = false, i+n
		}
		b.Offset[d], b.Size[d] = cuts[i], cuts[end]-cuts[i]
	}
	return b
}

// line is the number of cells that are neighbours along the last dimension that has several.
func (g grid) line() int {
	for _, cuts := range slices.Backward(g.cuts) {
		if len(cuts) > 2 {
			return len(cuts) - 1
		}
	}
	return 1
}
