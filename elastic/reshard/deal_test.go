package reshard

import (
	"fmt"
	"testing"
)

// TestOnce: what several members have is given to one of them, in equal shares.
func TestOnce(t *testing.T) {
	tensors := []Tensor{{Name: "a", Width: 4, Shape: []int{8}}, {Name: "b", Width: 4, Shape: []int{8}}, {Name: "c", Width: 4}, {Name: "d", Width: 4, Shape: []int{0, 3}}}
	half := func(i, at int) Piece { return Piece{i, Box{[]int{at}, []int{4}}} }
	whole := Piece{2, Whole(nil)}
	once := Once(tensors, [][]Piece{{half(0, 0), half(1, 0), whole}, {half(0, 4), half(1, 4), whole}, {half(0, 0), half(1, 0), whole}, {half(0, 4), half(1, 4)}})
	if missing := Missing(tensors, once); len(missing) > 0 {
		t.Errorf("%v is with nobody", missing)
	}
	if got := fmt.Sprint(once); got != "[[{0 [0:4]} {2 []}] [{0 [4:8]}] [{1 [0:4]}] [{1 [4:8]}]]" {
		t.Error(got)
	}
}

// TestDeal: whatever the worlds, each element is dealt once, to a member that there is, and nobody
// gets more than its part and a row of each box.
func TestDeal(t *testing.T) {
	for _, rows := range []int{1, 2, 5, 48, 100} {
		for from := 1; from < 9; from++ {
			for to := 1; to < 9; to++ {
				tensors := []Tensor{{Name: "a", Width: 1, Shape: []int{1, rows * from, 3}}}
				got := make([][]Piece, to)
				elements := 0
				for k := range from {
					box := Box{[]int{0, rows * k, 0}, []int{1, rows, 3}}
					for _, s := range Deal(box, k, from, to) {
						got[s.Member] = append(got[s.Member], Piece{0, s.Box})
						elements += s.Box.Elements()
					}
				}
				if missing := Missing(tensors, got); len(missing) > 0 || elements != tensors[0].Bytes() {
					t.Fatalf("%d rows from %d to %d: %d elements, without %v", rows, from, to, elements, missing)
				}
				for m, pieces := range got {
					n := 0
					for _, p := range pieces {
						n += p.Box.Size[1]
					}
					if float64(n) > float64(rows*from)/float64(to)+float64(from) {
						t.Errorf("%d rows from %d to %d: %d has %d", rows, from, to, m, n)
					}
				}
			}
		}
	}
	if got := fmt.Sprint(Deal(Box{[]int{6}, []int{6}}, 1, 2, 3), Deal(Box{}, 3, 4, 2), Deal(Box{[]int{1}, []int{0}}, 0, 1, 1)); got != "[{1 [6:8]} {2 [8:12]}] [{1 []}] []" {
		t.Error(got)
	}
}
