package reshard

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
)

// weight is a tensor of so many rows.
func weight(n int) []Tensor { return []Tensor{{Name: "w", Width: 4, Shape: []int{n, 3}}} }

// TestTheExampleOfCopies: who keeps what, and what moves when 3 is lost.
func TestTheExampleOfCopies(t *testing.T) {
	tensors := weight(16)
	has, nodes := dealt(tensors, 4), make([]string, 4)
	copies := Copies(has, nodes, 1)
	keeps := map[int][][2]int{}
	for _, list := range copies {
		for _, c := range list {
			for _, p := range c.Pieces {
				keeps[c.Holder] = append(keeps[c.Holder], [2]int{p.Box.Offset[0], p.Box.Offset[0] + p.Box.Size[0] - 1})
			}
		}
	}
	want := map[int][][2]int{0: {{4, 5}, {14, 15}}, 1: {{2, 3}, {8, 9}}, 2: {{6, 7}, {12, 13}}, 3: {{0, 1}, {10, 11}}}
	if !reflect.DeepEqual(keeps, want) {
		t.Errorf("they keep rows %v", keeps)
	}
	if got := moved(t, tensors, Copied(has, copies)[:3], dealt(tensors, 3)); got != 4*3*4 {
		t.Errorf("%d bytes move, and four rows of 12 should", got)
	}
	if got := moved(t, tensors, Copied(has, CopiesAt(Holders(nodes, 1), has))[:3], dealt(tensors, 3)); got != 10*3*4 {
		t.Errorf("with whole copies at the next one %d bytes move, and ten rows of 12 would", got)
	}
}

// moved is how many bytes a plan moves.
func moved(t *testing.T, tensors []Tensor, has, needs [][]Piece) (bytes int) {
	t.Helper()
	moves, err := Plan(tensors, has, needs, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range moves {
		bytes += m.Box.Elements() * tensors[m.Tensor].Width * (len(m.Chain) - 1)
	}
	return bytes
}

// TestALossMovesLess tries each loss: in the worst case and in all of them less moves than if a
// member kept all that another has.
func TestALossMovesLess(t *testing.T) {
	for n := 3; n <= 17; n++ {
		tensors := weight(n * (n - 1) * 2)
		has, nodes := dealt(tensors, n), make([]string, n)
		cut, whole := Copied(has, Copies(has, nodes, 1)), Copied(has, CopiesAt(Holders(nodes, 1), has))
		var all, most [2]int
		for lost := range n {
			for i, kept := range [][][]Piece{cut, whole} {
				bytes := moved(t, tensors, slices.Delete(slices.Clone(kept), lost, lost+1), dealt(tensors, n-1))
				all[i] += bytes
				most[i] = max(most[i], bytes)
			}
		}
		if all[0] > all[1] || most[0] >= most[1] {
			t.Errorf("%d members: %d bytes move for all losses, %d at most, and with whole copies %d and %d", n, all[0], most[0], all[1], most[1])
		}
	}
}

// TestEachElementHasItsCopies in all worlds of up to 17 members on nodes of one to four, and no
// member keeps much more than another.
func TestEachElementHasItsCopies(t *testing.T) {
	for n := 1; n <= 17; n++ {
		tensors := append(weight(20*n), Tensor{Name: "steps", Width: 4, Shape: []int{2 * n}})
		for perNode := 1; perNode <= 4; perNode++ {
			nodes := make([]string, n)
			for m := range nodes {
				nodes[m] = fmt.Sprint(m / perNode)
			}
			for copies := range 4 {
				has := dealt(tensors, n)
				kept := Copied(make([][]Piece, n), Copies(has, nodes, copies))
				keeps := make([]memory, n)
				for m, list := range kept {
					keeps[m] = contents(tensors, list)
				}
				for m, pieces := range has {
					for _, p := range pieces {
						eachElement(tensors[p.Tensor].Shape, p.Box, func(e int) {
							count := 0
							for _, k := range keeps {
								if k[p.Tensor][e] {
									count++
								}
							}
							if count != min(copies, n-1) || keeps[m][p.Tensor][e] {
								t.Fatalf("%d members, %d on a node, %d copies: of %v of %d one element has %d, or is kept by itself", n, perNode, copies, p, m, count)
							}
						})
					}
				}
				least, most := bytesOf(tensors, kept[0]), 0
				for _, list := range kept {
					least, most = min(least, bytesOf(tensors, list)), max(most, bytesOf(tensors, list))
				}
				if most > least+8*copies {
					t.Fatalf("%d members, %d on a node, %d copies: one keeps %d bytes, another %d", n, perNode, copies, least, most)
				}
			}
		}
	}
}

func bytesOf(tensors []Tensor, pieces []Piece) (n int) {
	for _, p := range pieces {
		n += p.Box.Elements() * tensors[p.Tensor].Width
	}
	return n
}

// TestCutCopiesSurviveAsMuch as whole ones, of members and of nodes, in all small worlds.
func TestCutCopiesSurviveAsMuch(t *testing.T) {
	for n := 1; n <= 7; n++ {
		tensors := weight(4 * n)
		has := dealt(tensors, n)
		for _, nodes := range layouts(n) {
			for copies := 1; copies < 4; copies++ {
				cut, whole := Copied(has, Copies(has, nodes, copies)), Copied(has, CopiesAt(Holders(nodes, copies), has))
				for _, by := range [][]string{nil, nodes} {
					if a, b := Survives(tensors, cut, nil, by), Survives(tensors, whole, nil, by); a < b {
						t.Fatalf("%d copies on %v survive %d losses of %v, and whole ones %d", copies, nodes, a, by, b)
					}
				}
			}
		}
	}
}
