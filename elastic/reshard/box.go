package reshard

import (
	"fmt"
	"slices"
	"strings"
)

// Tensor is a global tensor: one value of all members.
type Tensor struct {
	Name  string
	Type  string // of its elements, in the words of the program
	Width int    // bytes of an element
	Shape []int  // elements in each dimension; none = a single element
}

// Bytes is the size of all of the tensor.
func (t Tensor) Bytes() int { return Whole(t.Shape).Elements() * t.Width }

// Equal reports whether the tensors are the same.
func (t Tensor) Equal(o Tensor) bool {
	return t.Name == o.Name && t.Type == o.Type && t.Width == o.Width && slices.Equal(t.Shape, o.Shape)
}

// Box is a part of a tensor: in each dimension Size elements from Offset on. A tensor without
// dimensions has one box, without dimensions, which is its only element.
type Box struct {
	Offset, Size []int
}

// Whole is the box with all elements of a shape.
func Whole(shape []int) Box { return Box{Offset: make([]int, len(shape)), Size: slices.Clone(shape)} }

// Elements is the number of elements in the box.
func (b Box) Elements() int {
	n := 1
	for _, s := range b.Size {
		n *= s
	}
	return n
}

// Within reports whether the box is one of a tensor of this shape.
func (b Box) Within(shape []int) bool {
	if len(b.Offset) != len(shape) || len(b.Size) != len(shape) {
		return false
	}
	for d, n := range shape {
		if b.Offset[d] < 0 || b.Size[d] < 0 || b.Offset[d] > n || b.Size[d] > n-b.Offset[d] {
			return false
		}
	}
	return true
}

// Intersect returns the elements that are in both boxes, which must have as many dimensions; ok is
// false if there are none.
func (b Box) Intersect(o Box) (common Box, ok bool) {
	common = Box{Offset: make([]int, len(b.Offset)), Size: make([]int, len(b.Size))}
	for d := range b.Offset {
		lo := max(b.Offset[d], o.Offset[d])
		hi := min(b.Offset[d]+b.Size[d], o.Offset[d]+o.Size[d])
		if lo >= hi {
			return Box{}, false
		}
		common.Offset[d], common.Size[d] = lo, hi-lo
	}
	return common, true
}

// Equal reports whether the boxes are the same.
func (b Box) Equal(o Box) bool {
	return slices.Equal(b.Offset, o.Offset) && slices.Equal(b.Size, o.Size)
}

// String formats a box as Python does a slice: "[0:3, 8:16]".
func (b Box) String() string {
	parts := make([]string, len(b.Offset))
	for d := range b.Offset {
		parts[d] = fmt.Sprintf("%d:%d", b.Offset[d], b.Offset[d]+b.Size[d])
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// Run is a range of bytes of a box's elements that is a range of them in another box, too.
type Run struct {
	At, In, Bytes int // the offsets in the memory of the one and of the other
}

// Runs calls f with the ranges that a part of two boxes consists of, in ascending order. The
// elements of a box are in row-major order in its memory, width bytes each.
//
//	part [1:3, 0:2] of [1:3, 0:2] and of [0:4, 0:8], width 4:    0 in 32, 8 bytes; 8 in 64, 8 bytes
func Runs(part, a, b Box, width int, f func(Run)) {
	if part.Elements() == 0 {
		return
	}
	// From this dimension on, the part is all of both boxes, so that its elements are contiguous in
	// both.
	inner := len(part.Size)
	run := width
	for inner > 0 {
		d := inner - 1
		run *= part.Size[d]
		inner--
		if part.Size[d] != a.Size[d] || part.Size[d] != b.Size[d] {
			break
		}
	}
	index := make([]int, inner)
	for {
		f(Run{At: width * address(part, a, index), In: width * address(part, b, index), Bytes: run})
		d := inner - 1
		for ; d >= 0; d-- {
			if index[d]++; index[d] < part.Size[d] {
				break
			}
			index[d] = 0
		}
		if d < 0 {
			return
		}
	}
}

// address is the number, in a box, of the element at an index of a part of it. The dimensions that
// the index lacks are at their begin.
func address(part, box Box, index []int) int {
	n := 0
	for d := range box.Size {
		at := part.Offset[d] - box.Offset[d]
		if d < len(index) {
			at += index[d]
		}
		n = n*box.Size[d] + at
	}
	return n
}

// stripes divides a box into boxes of at most limit elements, along the first dimensions, so that
// each is contiguous in a box that is a number of rows.
func stripes(b Box, limit int, f func(Box)) {
	if b.Elements() <= limit {
		f(b)
		return
	}
	d := slices.IndexFunc(b.Size, func(n int) bool { return n > 1 })
	rows := max(1, limit/(b.Elements()/b.Size[d]))
	for at := 0; at < b.Size[d]; at += rows {
		s := Box{Offset: slices.Clone(b.Offset), Size: slices.Clone(b.Size)}
		s.Offset[d], s.Size[d] = b.Offset[d]+at, min(rows, b.Size[d]-at)
		stripes(s, limit, f)
	}
}
