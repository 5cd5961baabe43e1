package reshard

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// rows is the box that torch.chunk gives member m of n along the first dimension: the last ones may
// have less than the others, or nothing.
func rows(shape []int, m, n int) Box {
	b := Whole(shape)
	per := (shape[0] + n - 1) / n
	lo := min(m*per, shape[0])
	b.Offset[0], b.Size[0] = lo, min(per, shape[0]-lo)
	return b
}

// dealt is what members have of tensors that are dealt to n of them by rows.
func dealt(tensors []Tensor, n int) [][]Piece {
	all := make([][]Piece, n)
	for m := range all {
		for i, t := range tensors {
			if b := rows(t.Shape, m, n); b.Elements() > 0 {
				all[m] = append(all[m], Piece{Tensor: i, Box: b})
			}
		}
	}
	return all
}

// memory is which elements of each tensor a member has, by row-major index.
type memory []map[int]bool

func contents(tensors []Tensor, pieces []Piece) memory {
	m := make(memory, len(tensors))
	for i := range m {
		m[i] = map[int]bool{}
	}
	for _, p := range pieces {
		eachElement(tensors[p.Tensor].Shape, p.Box, func(e int) { m[p.Tensor][e] = true })
	}
	return m
}

func eachElement(shape []int, b Box, f func(e int)) {
	Runs(b, b, Whole(shape), 1, func(r Run) {
		for i := range r.Bytes {
			f(r.In + i)
		}
	})
}

// check executes a plan and checks everything that it promises.
func check(t interface{ Fatalf(string, ...any) }, tensors []Tensor, has, needs [][]Piece, limit int, moves []Move) {
	state, want := make([]memory, len(has)), make([]memory, len(has))
	lacking := 0
	for m := range has {
		state[m], want[m] = contents(tensors, has[m]), contents(tensors, needs[m])
		for i := range tensors {
			for e := range want[m][i] {
				if !state[m][i][e] {
					lacking++
				}
			}
		}
	}
	moved := 0
	for k, v := range moves {
		shape := tensors[v.Tensor].Shape
		if bytes := v.Box.Elements() * tensors[v.Tensor].Width; bytes > limit && v.Box.Elements() > 1 {
			t.Fatalf("move %d has %d bytes, at most %d are allowed", k, bytes, limit)
		}
		for i, m := range v.Chain {
			pieces := needs[m]
			if i == 0 {
				pieces = has[m]
			}
			if !slices.ContainsFunc(pieces, func(p Piece) bool {
				if p.Tensor != v.Tensor {
					return false
				}
				common, ok := p.Box.Intersect(v.Box)
				return ok && common.Equal(v.Box)
			}) {
				t.Fatalf("move %d: no piece of member %d has all of %v of %s", k, m, v.Box, tensors[v.Tensor].Name)
			}
			eachElement(shape, v.Box, func(e int) {
				switch {
				case i == 0 && !state[m][v.Tensor][e]:
					t.Fatalf("move %d: member %d is to send element %d of %s and does not have it", k, m, e, tensors[v.Tensor].Name)
				case i > 0 && state[m][v.Tensor][e]:
					t.Fatalf("move %d: member %d has element %d of %s already", k, m, e, tensors[v.Tensor].Name)
				case i > 0 && !want[m][v.Tensor][e]:
					t.Fatalf("move %d: member %d does not need element %d of %s", k, m, e, tensors[v.Tensor].Name)
				}
			})
		}
		for _, m := range v.Chain[1:] {
			eachElement(shape, v.Box, func(e int) { state[m][v.Tensor][e], moved = true, moved+1 })
		}
	}
	if moved != lacking {
		t.Fatalf("%d elements arrive, %d are lacking", moved, lacking)
	}
	for m := range want {
		for i := range tensors {
			for e := range want[m][i] {
				if !state[m][i][e] {
					t.Fatalf("member %d still lacks element %d of %s", m, e, tensors[i].Name)
				}
			}
		}
	}
}

// TestAllWorlds goes from every number of members to every other, where members leave from the end
// and the ones that remain have copies of their left neighbours.
func TestAllWorlds(t *testing.T) {
	tensors := []Tensor{
		{Name: "weight", Type: "float32", Width: 4, Shape: []int{66, 5}},
		{Name: "bias", Type: "float32", Width: 4, Shape: []int{66}},
		{Name: "small", Type: "int64", Width: 8, Shape: []int{3}},
	}
	for n := 1; n <= 17; n++ {
		for m := 1; m <= 17; m++ {
			has := dealt(tensors, n)
			nodes := make([]string, n)
			for i := range nodes {
				nodes[i] = fmt.Sprint(i / 2)
			}
			for r, holders := range Holders(nodes, n-1) {
				for _, h := range holders {
					has[h] = append(has[h], dealt(tensors, n)[r]...)
				}
			}
			has = append(has, make([][]Piece, max(0, m-n))...)[:m]
			needs := dealt(tensors, m)
			moves, err := Plan(tensors, has, needs, 64)
			if err != nil {
				t.Fatalf("%d to %d: %v", n, m, err)
			}
			check(t, tensors, has, needs, 64, moves)
		}
	}
}

// TestTheExampleOfThePackage is the example in the comment of the package.
func TestTheExampleOfThePackage(t *testing.T) {
	weight := []Tensor{{Name: "weight", Width: 1, Shape: []int{12}}}
	has := dealt(weight, 4)
	has[0] = append(has[0], has[3]...)
	moves, err := Plan(weight, has[:3], dealt(weight, 3), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range moves {
		got = append(got, fmt.Sprint(m.Box, m.Chain))
	}
	want := []string{"[3:4] [1 0]", "[6:8] [2 1]", "[9:12] [0 2]"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func drawBox(t *rapid.T, shape []int) Box {
	b := Whole(shape)
	for d, n := range shape {
		b.Offset[d] = rapid.IntRange(0, n).Draw(t, "offset")
		b.Size[d] = rapid.IntRange(0, n-b.Offset[d]).Draw(t, "size")
	}
	return b
}

func drawPieces(t *rapid.T, tensors []Tensor, world, most int) [][]Piece {
	all := make([][]Piece, world)
	for m := range all {
		for range rapid.IntRange(0, most).Draw(t, "pieces") {
			i := rapid.IntRange(0, len(tensors)-1).Draw(t, "tensor")
			all[m] = append(all[m], Piece{Tensor: i, Box: drawBox(t, tensors[i].Shape)})
		}
	}
	return all
}

// TestAnyBoxes has members with any boxes, which may overlap, of tensors of up to three dimensions:
// either the plan does what it promises, or what it calls missing is with nobody and needed.
func TestAnyBoxes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tensors []Tensor
		for i := range rapid.IntRange(1, 3).Draw(t, "tensors") {
			tensors = append(tensors, Tensor{
				Name: fmt.Sprint(i), Width: rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "width"),
				Shape: rapid.SliceOfN(rapid.IntRange(0, 7), 0, 3).Draw(t, "shape"),
			})
		}
		world := rapid.IntRange(1, 17).Draw(t, "world")
		has, needs := drawPieces(t, tensors, world, 4), drawPieces(t, tensors, world, 3)
		if rapid.Bool().Draw(t, "everything is there") {
			for i := range tensors {
				m := rapid.IntRange(0, world-1).Draw(t, "holder")
				has[m] = append(has[m], Piece{Tensor: i, Box: Whole(tensors[i].Shape)})
			}
		}
		limit := rapid.IntRange(1, 200).Draw(t, "limit")
		moves, err := Plan(tensors, has, needs, limit)
		var missing *MissingError
		if !errors.As(err, &missing) {
			check(t, tensors, has, needs, limit, moves)
		}
		all := make([]memory, world)
		for m := range has {
			all[m] = contents(tensors, has[m])
		}
		nobodys := contents(tensors, Missing(tensors, has))
		for i, x := range tensors {
			for e := range Whole(x.Shape).Elements() {
				if found := slices.ContainsFunc(all, func(m memory) bool { return m[i][e] }); found == nobodys[i][e] {
					t.Fatalf("element %d of %s: somebody has it: %t, it is missing: %t", e, x.Name, found, nobodys[i][e])
				}
			}
		}
		if missing == nil {
			return
		}
		i := slices.IndexFunc(tensors, func(x Tensor) bool { return x.Name == missing.Tensor })
		eachElement(tensors[i].Shape, missing.Box, func(e int) {
			if slices.ContainsFunc(has, func(p []Piece) bool { return contents(tensors, p)[i][e] }) {
				t.Fatalf("element %d of %s is called missing, and somebody has it", e, missing.Tensor)
			}
			if !slices.ContainsFunc(needs, func(p []Piece) bool { return contents(tensors, p)[i][e] }) {
				t.Fatalf("element %d of %s is called missing, and nobody needs it", e, missing.Tensor)
			}
		})
	})
}

// TestHoldersShareTheWork: a member that lacks everything gets it from all others in equal parts,
// and of several that lack it none sends more than it receives.
func TestHoldersShareTheWork(t *testing.T) {
	tensors := []Tensor{{Name: "w", Width: 4, Shape: []int{1 << 16}}}
	all := []Piece{{Box: Whole(tensors[0].Shape)}}
	for holders := 1; holders <= 8; holders++ {
		for newcomers := 1; newcomers <= 9; newcomers++ {
			world := holders + newcomers
			has, needs := make([][]Piece, world), make([][]Piece, world)
			for m := range world {
				if needs[m] = all; m < holders {
					has[m] = all
				}
			}
			moves, err := Plan(tensors, has, needs, 1<<10)
			if err != nil {
				t.Fatal(err)
			}
			sent := make([]int, world)
			for _, m := range moves {
				for _, from := range m.Chain[:len(m.Chain)-1] {
					sent[from] += m.Box.Elements() * 4
				}
			}
			size := tensors[0].Bytes()
			for m, n := range sent {
				if most := size/holders + 1<<10; m < holders && n > most || n > size {
					t.Errorf("%d holders, %d newcomers: member %d sends %d bytes of %d", holders, newcomers, m, n, size)
				}
			}
		}
	}
}

// TestASmallerWorldMovesTheOptimum: 4 to 3 members, the last of which has left, moves half of the
// state: a twelfth, a sixth and a quarter of it.
func TestASmallerWorldMovesTheOptimum(t *testing.T) {
	tensors := []Tensor{{Name: "w", Width: 4, Shape: []int{1200, 7}}}
	has := dealt(tensors, 4)
	has[0] = append(has[0], has[3]...)
	moves, err := Plan(tensors, has[:3], dealt(tensors, 3), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	moved := 0
	for _, m := range moves {
		moved += m.Box.Elements() * 4 * (len(m.Chain) - 1)
	}
	if moved*2 != tensors[0].Bytes() {
		t.Errorf("%d bytes of %d are moved", moved, tensors[0].Bytes())
	}
}

func BenchmarkPlan(b *testing.B) {
	var tensors []Tensor
	for i := range 1000 {
		tensors = append(tensors, Tensor{Name: fmt.Sprint(i), Width: 4, Shape: []int{4096, 1024}})
	}
	for _, n := range []int{4, 16, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			has := dealt(tensors, n)
			has[0] = append(has[0], has[n-1]...)
			needs := dealt(tensors, n-1)
			moves := 0
			for b.Loop() {
				plan, err := Plan(tensors, has[:n-1], needs, 4<<20)
				if err != nil {
					b.Fatal(err)
				}
				moves = len(plan)
			}
			b.ReportMetric(float64(moves), "moves")
		})
	}
}
