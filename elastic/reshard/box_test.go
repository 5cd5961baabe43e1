package reshard

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestRunsCopyEveryElement copies a common part of two boxes of a tensor by its runs, and compares
// with a copy element by element.
func TestRunsCopyEveryElement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := rapid.SliceOfN(rapid.IntRange(1, 6), 0, 4).Draw(t, "shape")
		width := rapid.SampledFrom([]int{1, 2, 8}).Draw(t, "width")
		a, b := drawBox(t, shape), drawBox(t, shape)
		part, ok := a.Intersect(b)
		if !ok {
			return
		}
		from := make([]byte, a.Elements()*width)
		for i := range from {
			from[i] = byte(i + 1)
		}
		got, want := make([]byte, b.Elements()*width), make([]byte, b.Elements()*width)
		end := 0
		Runs(part, a, b, width, func(r Run) {
			if r.At < end || r.Bytes <= 0 {
				t.Fatalf("a run of %d bytes at %d after one that ends at %d", r.Bytes, r.At, end)
			}
			end = r.At + r.Bytes
			copy(got[r.In:r.In+r.Bytes], from[r.At:r.At+r.Bytes])
		})
		var element func(d int, index []int)
		element = func(d int, index []int) {
			if d < len(shape) {
				for i := range part.Size[d] {
					element(d+1, append(index[:d:d], i))
				}
				return
			}
			i, j := width*address(part, a, index), width*address(part, b, index)
			copy(want[j:j+width], from[i:i+width])
		}
		element(0, nil)
		if !bytes.Equal(got, want) {
			t.Fatalf("part %v of %v and %v: % x, want % x", part, a, b, got, want)
		}
	})
}

// TestRowsAreOneRun: rows of a box of rows are copied at once.
func TestRowsAreOneRun(t *testing.T) {
	shape := []int{100, 8, 4}
	a, b := rows(shape, 1, 4), rows(shape, 1, 3)
	part, _ := a.Intersect(b)
	n := 0
	Runs(part, a, b, 4, func(r Run) {
		n++
		if want := (Run{At: 9 * 128, In: 0, Bytes: 16 * 128}); r != want {
			t.Errorf("%+v, want %+v", r, want)
		}
	})
	if n != 1 {
		t.Errorf("%d runs", n)
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		offset, size, shape []int
		want                bool
	}{
		{nil, nil, nil, true},
		{[]int{0, 2}, []int{3, 1}, []int{3, 3}, true},
		{[]int{3, 0}, []int{0, 3}, []int{3, 3}, true},
		{[]int{2, 0}, []int{2, 3}, []int{3, 3}, false},
		{[]int{-1, 0}, []int{2, 3}, []int{3, 3}, false},
		{[]int{0, 0}, []int{-1, 3}, []int{3, 3}, false},
		{[]int{4, 0}, []int{0, 3}, []int{3, 3}, false},
		{[]int{0}, []int{3}, []int{3, 3}, false},
	} {
		if got := (Box{c.offset, c.size}).Within(c.shape); got != c.want {
			t.Errorf("%v %v within %v: %t", c.offset, c.size, c.shape, got)
		}
	}
}
