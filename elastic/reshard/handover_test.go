package reshard

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTheExampleOfHandover: rows 3-5 of member 1, which leaves, go where they will be needed.
func TestTheExampleOfHandover(t *testing.T) {
	tensors := []Tensor{{Name: "w", Width: 4, Shape: []int{12, 2}}}
	moves := Handover(tensors, dealt(tensors, 4), []bool{false, true, false, false}, 1<<20)
	var got []string
	for _, m := range moves {
		got = append(got, fmt.Sprint(m.Box, m.Chain))
	}
	if want := []string{"[3:4, 0:2] [1 0]", "[4:6, 0:2] [1 2]"}; !slices.Equal(got, want) {
		t.Errorf("moves %v, want %v", got, want)
	}
}

// TestThoseWhoStayHaveEverything has any members with any parts leave: those who stay then have
// each element that anybody had, and were sent none of those that one of them had.
func TestThoseWhoStayHaveEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world := rapid.IntRange(1, 6).Draw(t, "world")
		tensors := []Tensor{{Name: "w", Width: 4, Shape: []int{9, 4}}, {Name: "b", Width: 2, Shape: []int{7}}, {Name: "s", Width: 8}}
		has := drawPieces(t, tensors, world, 3)
		leaving := rapid.SliceOfN(rapid.Bool(), world, world).Draw(t, "leaving")
		limit := rapid.IntRange(1, 64).Draw(t, "limit")
		moves := Handover(tensors, has, leaving, limit)
		if !slices.Contains(leaving, false) {
			leaving[0] = false
		}
		type element struct{ tensor, index int }
		had, kept, sent := map[element]bool{}, map[element]bool{}, map[element]bool{}
		each := func(p Piece, f func(e element)) {
			eachElement(tensors[p.Tensor].Shape, p.Box, func(i int) { f(element{p.Tensor, i}) })
		}
		for m, list := range has {
			for _, p := range list {
				each(p, func(e element) { had[e], kept[e] = true, kept[e] || !leaving[m] })
			}
		}
		for _, m := range moves {
			from, to := m.Chain[0], m.Chain[1]
			if len(m.Chain) != 2 || !leaving[from] || leaving[to] {
				t.Fatalf("%v is sent along %v, and %v leave", m.Piece, m.Chain, leaving)
			}
			if bytes := m.Box.Elements() * tensors[m.Tensor].Width; bytes > limit && m.Box.Elements() > 1 {
				t.Fatalf("%v has %d bytes, limit %d", m.Piece, bytes, limit)
			}
			each(m.Piece, func(e element) {
				if !slices.ContainsFunc(has[from], func(p Piece) bool { return within(tensors, p, e.tensor, e.index) }) {
					t.Fatalf("%d has not got %v of %v", from, e, m)
				}
				if kept[e] || sent[e] {
					t.Fatalf("%v of %v is there already", e, m)
				}
				sent[e] = true
			})
		}
		for e := range had {
			if !kept[e] && !sent[e] {
				t.Fatalf("%v is lost: %v", e, moves)
			}
		}
	})
}

func within(tensors []Tensor, p Piece, tensor, index int) (found bool) {
	if p.Tensor == tensor {
		eachElement(tensors[tensor].Shape, p.Box, func(i int) { found = found || i == index })
	}
	return found
}
