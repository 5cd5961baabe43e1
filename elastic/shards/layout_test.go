package shards

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/regroup-io/regroup/elastic/reshard"
)

// simulatedTensors are those of a simulated state: of several dimensions and widths, one without
// dimensions, and one without elements.
var simulatedTensors = []reshard.Tensor{
	{Name: "w", Type: "float32", Width: 4, Shape: []int{13, 3}},
	{Name: "b", Type: "int16", Width: 2, Shape: []int{7}},
	{Name: "bits", Type: "uint8", Width: 1, Shape: []int{4, 3, 2}},
	{Name: "none", Type: "float32", Width: 4, Shape: []int{0, 5}},
	{Name: "step", Type: "int64", Width: 8},
}

// drawLayout says which boxes of each tensor each of a world's members has: together all of it. A
// member with none has one of no elements.
func drawLayout(r *rand.Rand, world int) (layout [][]part, what string) {
	layout = make([][]part, world)
	common := r.IntN(6)
	for _, t := range simulatedTensors {
		kind := common // often, the tensors of a model are alike
		if r.IntN(3) == 0 {
			kind = r.IntN(6)
		}
		boxes := make([][]reshard.Box, world)
		give := func(member int, b reshard.Box) { boxes[member] = append(boxes[member], b) }
		switch whole := reshard.Whole(t.Shape); kind {
		case 0: // dealt
			what += "d"
			for m := range world {
				give(m, rows(whole, m, world))
			}
		case 1: // dealt to each of several replicas
			per := 1 + r.IntN(world)
			what += fmt.Sprint("r", per)
			for m := range world {
				give(m, rows(whole, m%min(per, world), min(per, world-m/per*per)))
			}
		case 2: // with all
			what += "a"
			for m := range world {
				give(m, whole)
			}
		case 3: // with one
			what += "o"
			give(r.IntN(world), whole)
		case 4: // in any boxes, each with one or two
			what += "b"
			divide(r, whole, func(b reshard.Box) {
				m := r.IntN(world)
				give(m, b)
				if o := r.IntN(world); o != m && r.IntN(3) == 0 {
					give(o, b)
				}
			})
		case 5: // twice, in different boxes, with one half of the members and with the other
			what += "t"
			half := (world + 1) / 2
			divide(r, whole, func(b reshard.Box) { give(r.IntN(half), b) })
			if half < world {
				divide(r, whole, func(b reshard.Box) { give(half+r.IntN(world-half), b) })
			}
		}
		for m, list := range boxes {
			list = slices.DeleteFunc(list, func(b reshard.Box) bool { return b.Elements() == 0 })
			if len(list) == 0 {
				list = append(list, reshard.Box{Offset: make([]int, len(t.Shape)), Size: make([]int, len(t.Shape))})
			}
			for _, b := range list {
				layout[m] = append(layout[m], part{tensor: t, box: b, memory: make([]byte, b.Elements()*t.Width)})
			}
		}
	}
	return layout, what
}

// rows are the m-th of n ranges of a box's first dimension.
func rows(b reshard.Box, m, n int) reshard.Box {
	if len(b.Size) == 0 {
		return b
	}
	b = reshard.Box{Offset: slices.Clone(b.Offset), Size: slices.Clone(b.Size)}
	per := (b.Size[0] + n - 1) / n
	from := min(m*per, b.Size[0])
	b.Offset[0], b.Size[0] = b.Offset[0]+from, min(per, b.Size[0]-from)
	return b
}

// divide divides a box into some.
func divide(r *rand.Rand, b reshard.Box, f func(reshard.Box)) {
	if len(b.Size) == 0 || b.Elements() < 2 || r.IntN(4) == 0 {
		f(b)
		return
	}
	d := r.IntN(len(b.Size))
	for b.Size[d] < 2 {
		d = (d + 1) % len(b.Size)
	}
	at := 1 + r.IntN(b.Size[d]-1)
	low := reshard.Box{Offset: slices.Clone(b.Offset), Size: slices.Clone(b.Size)}
	high := reshard.Box{Offset: slices.Clone(b.Offset), Size: slices.Clone(b.Size)}
	low.Size[d] = at
	high.Offset[d], high.Size[d] = b.Offset[d]+at, b.Size[d]-at
	divide(r, low, f)
	divide(r, high, f)
}

// content is that of all tensors, one after the other.
type content []byte

// starts are where each tensor begins in a content, and where the last one ends.
var starts = func() (at []int) {
	n := 0
	for _, t := range simulatedTensors {
		at = append(at, n)
		n += t.Bytes()
	}
	return append(at, n)
}()

// contentOf is the content with a name of its own: each byte depends on the name and its place.
func contentOf(name uint64) content {
	c := make(content, starts[len(starts)-1])
	for i := range c {
		x := (name*1_000_003 + uint64(i) + 1) * 0x9E3779B97F4A7C15
		x ^= x >> 29
		x *= 0xBF58476D1CE4E5B9
		c[i] = byte(x >> 56)
	}
	return c
}

// each calls f with the ranges of a content that a part has, and where in its memory they are.
func (p part) each(f func(at, in, bytes int)) {
	i := slices.IndexFunc(simulatedTensors, p.tensor.Equal)
	reshard.Runs(p.box, p.box, reshard.Whole(p.tensor.Shape), p.tensor.Width, func(r reshard.Run) {
		f(starts[i]+r.In, r.At, r.Bytes)
	})
}

// fill makes the memory of parts that of a content.
func (c content) fill(parts []part) {
	for _, p := range parts {
		p.each(func(at, in, n int) { copy(p.memory[in:in+n], c[at:]) })
	}
}

// take makes the content that of parts.
func (c content) take(parts []part) {
	for _, p := range parts {
		p.each(func(at, in, n int) { copy(c[at:at+n], p.memory[in:]) })
	}
}

// differs returns a part that is not of the content, unless all are.
func (c content) differs(parts []part) (what string, differs bool) {
	for _, p := range parts {
		p.each(func(at, in, n int) {
			for k := range n {
				if p.memory[in+k] != c[at+k] && !differs {
					what, differs = fmt.Sprintf("byte %d of %s%v", in+k, p.tensor.Name, p.box), true
				}
			}
		})
	}
	return what, differs
}
