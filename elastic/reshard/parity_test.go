package reshard

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestGroupsAreSpread tries all distributions of up to 8 members over up to 3 nodes, and large
// worlds.
func TestGroupsAreSpread(t *testing.T) {
	var each func(nodes []string)
	each = func(nodes []string) {
		for k := 1; k <= len(nodes)+1; k++ {
			checkGroups(t, nodes, k)
		}
		if len(nodes) == 8 {
			return
		}
		for node := range 3 {
			each(append(slices.Clone(nodes), fmt.Sprint(node)))
		}
	}
	each([]string{"0"})
	for n := 1; n < 100; n++ {
		nodes := make([]string, n)
		for m := range nodes {
			nodes[m] = fmt.Sprint(m / 8)
		}
		for k := 1; k < 10; k++ {
			checkGroups(t, nodes, k)
		}
	}
}

func checkGroups(t *testing.T, nodes []string, k int) {
	groups := Groups(nodes, k)
	in := map[int]bool{}
	least, most := len(nodes), 0
	for _, g := range groups {
		least, most = min(least, len(g)), max(most, len(g))
		for _, m := range g {
			if in[m] {
				t.Fatalf("nodes %v, parity of %d: member %d is in two groups: %v", nodes, k, m, groups)
			}
			in[m] = true
		}
	}
	if len(in) != len(nodes) || least < min(k+1, len(nodes)) || most > max(2*k+1, least) || most > least+1 {
		t.Fatalf("nodes %v, parity of %d: %v", nodes, k, groups)
	}
	for i, node := range nodes {
		count := 0
		for _, n := range nodes {
			if n == node {
				count++
			}
		}
		if count > len(groups) {
			continue
		}
		for _, g := range groups {
			if slices.ContainsFunc(g, func(m int) bool { return m != i && nodes[m] == node }) && slices.Contains(g, i) {
				t.Fatalf("nodes %v, parity of %d: %v have several members of node %s, which has no more than there are groups", nodes, k, groups, node)
			}
		}
	}
}

// TestStripes: the stripes one after the other are the pieces one after the other, cut evenly.
func TestStripes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tensors := []Tensor{{Name: "a", Width: 4, Shape: []int{5, 4, 3}}, {Name: "b", Width: 1, Shape: []int{7}}, {Name: "c", Width: 8}}
		pieces := slices.Concat(drawPieces(t, tensors, 3, 4)...)
		n := rapid.IntRange(1, 9).Draw(t, "n")
		stripes := Stripes(tensors, pieces, n)
		truth := randomContent(tensors)
		all := pack(tensors, truth, pieces)
		if got := pack(tensors, truth, slices.Concat(stripes...)); len(stripes) != n || !bytes.Equal(got, all) {
			t.Fatalf("%d stripes of %v: %v", n, pieces, stripes)
		}
		for _, s := range stripes {
			if size := len(pack(tensors, truth, s)); size > len(all)/n+8 {
				t.Fatalf("%d stripes of %d bytes: one has %d", n, len(all), size)
			}
			for _, p := range s {
				if p.Box.Elements() == 0 || !p.Box.Within(tensors[p.Tensor].Shape) {
					t.Fatalf("%v of %v", p.Box, tensors[p.Tensor].Shape)
				}
			}
		}
	})
}

// randomContent is some content of tensors.
func randomContent(tensors []Tensor) [][]byte {
	content := make([][]byte, len(tensors))
	x := uint32(1)
	for i, t := range tensors {
		content[i] = make([]byte, t.Bytes())
		for k := range content[i] {
			x = x*1664525 + 1013904223
			content[i][k] = byte(x >> 24)
		}
	}
	return content
}

// pack returns the content of pieces, one after the other.
func pack(tensors []Tensor, content [][]byte, pieces []Piece) []byte {
	var b []byte
	for _, p := range pieces {
		t := tensors[p.Tensor]
		at := len(b)
		b = append(b, make([]byte, p.Box.Elements()*t.Width)...)
		Runs(p.Box, Whole(t.Shape), p.Box, t.Width, func(r Run) {
			copy(b[at+r.In:at+r.In+r.Bytes], content[p.Tensor][r.At:])
		})
	}
	return b
}

func xor(into, b []byte) []byte {
	into = append(into, make([]byte, max(0, len(b)-len(into)))...)
	for i := range b {
		into[i] ^= b[i]
	}
	return into
}

// protected is a world whose members keep parity.
type protected struct {
	tensors []Tensor
	truth   [][]byte  // the content of each
	has     [][]Piece // by member
	groups  []Group
	parity  map[[2]int][]byte // by group and position
}

func newProtected(n, k int) *protected {
	w := &protected{parity: map[[2]int][]byte{}, tensors: []Tensor{
		{Name: "w", Width: 4, Shape: []int{23, 3}},
		{Name: "b", Width: 2, Shape: []int{5}},
		{Name: "bits", Width: 1, Shape: []int{16, 2, 5}},
		{Name: "step", Width: 8},
	}}
	w.truth = randomContent(w.tensors)
	w.has = dealt(w.tensors[:3], n)
	for m := range w.has {
		w.has[m] = append(w.has[m], Piece{Tensor: 3, Box: Whole(nil)}) // all have this one
	}
	alone := Rare(w.tensors, w.has, 1)
	for i, members := range Groups(make([]string, n), k) {
		g := Group{Members: members, Kept: slices.Repeat([]bool{true}, len(members))}
		for of, m := range members {
			g.Pieces = append(g.Pieces, alone[m])
			if len(members) == 1 {
				continue
			}
			for keeper := range members {
				if keeper != of {
					stripe := Stripes(w.tensors, alone[m], len(members)-1)[StripeFor(of, keeper)]
					w.parity[[2]int{i, keeper}] = xor(w.parity[[2]int{i, keeper}], pack(w.tensors, w.truth, stripe))
				}
			}
		}
		w.groups = append(w.groups, g)
	}
	return w
}

// without returns the world without some members: bit m of lost is set for member m.
func (w *protected) without(lost int) *protected {
	left := *w
	left.has, left.groups = slices.Clone(w.has), slices.Clone(w.groups)
	for i := range left.groups {
		g := &left.groups[i]
		g.Members = slices.Clone(g.Members)
		for at, m := range g.Members {
			if m >= 0 && lost>>m&1 == 1 {
				left.has[m], g.Members[at] = nil, -1
			}
		}
	}
	return &left
}

// rebuild rebuilds what can be, compares it with the truth, and reports whether nothing is missing
// then.
func (w *protected) rebuild(t *testing.T, what string) bool {
	for i, g := range w.groups {
		for lost, m := range g.Members {
			if m >= 0 {
				continue
			}
			for keeper, pieces := range g.Rebuilt(w.tensors, lost) {
				if len(pieces) == 0 {
					continue
				}
				got := slices.Clone(w.parity[[2]int{i, keeper}])
				for of, m := range g.Members {
					if of != keeper && m >= 0 {
						stripe := Stripes(w.tensors, g.Pieces[of], len(g.Members)-1)[StripeFor(of, keeper)]
						got = xor(got, pack(w.tensors, w.truth, stripe))
					}
				}
				if want := pack(w.tensors, w.truth, pieces); !bytes.Equal(got[:len(want)], want) {
					t.Fatalf("%s: what position %d of group %d rebuilds of %d differs", what, keeper, i, lost)
				}
				at := g.Members[keeper]
				w.has[at] = slices.Concat(w.has[at], pieces)
			}
		}
	}
	return len(Missing(w.tensors, w.has)) == 0
}

// survivesOne reports whether each single loss is survived.
func (w *protected) survivesOne(t *testing.T, what string) bool {
	for m := range w.has {
		if w.has[m] != nil && !w.without(1<<m).rebuild(t, what) {
			return false
		}
	}
	return true
}

// TestParityRebuildsWhatIsLost tries all losses of worlds of up to 7 members: what Survives
// claims is true before and after each, what is rebuilt is equal to the bit, and one loss in each
// group is survived, while a second one in a group that has parts is not.
func TestParityRebuildsWhatIsLost(t *testing.T) {
	for n := 1; n <= 7; n++ {
		for k := 1; k <= n+1; k++ {
			all := newProtected(n, k)
			for lost := range 1<<n - 1 {
				what := fmt.Sprintf("%d members, parity of %d, %b lost", n, k, lost)
				most, parts := 0, false // the losses of a group; whether one with several had parts
				for _, g := range all.groups {
					gone, had := 0, 0
					for at, m := range g.Members {
						if lost>>m&1 == 1 {
							gone, had = gone+1, had+len(g.Pieces[at])
						}
					}
					most, parts = max(most, gone), parts || gone > 1 && had > 0
				}
				left := all.without(lost)
				whole := left.rebuild(t, what)
				switch {
				case n > 1 && most <= 1 && !whole:
					t.Fatalf("%s: parts are missing", what)
				case parts && whole:
					t.Fatalf("%s: nothing is missing", what)
				}
				want := -1
				if whole {
					want = 0
					if left.survivesOne(t, what) {
						want = 1
					}
				}
				if got := Survives(left.tensors, left.has, left.groups, nil); got != want || lost == 0 && got != min(1, n-1) {
					t.Fatalf("%s: %d losses more are said to be survived, and %d are", what, got, want)
				}
			}
		}
	}
}

// TestParityThatIsNotComplete: what a member has not received yet rebuilds nothing.
func TestParityThatIsNotComplete(t *testing.T) {
	for n := 2; n <= 6; n++ {
		for kept := range 1 << n {
			what := fmt.Sprintf("%d members, complete with %b", n, kept)
			w := newProtected(n, 2)
			for _, g := range w.groups {
				for at, m := range g.Members {
					g.Kept[at] = kept>>m&1 == 1
				}
			}
			want := 0
			if w.survivesOne(t, what) {
				want = 1
			}
			if got := Survives(w.tensors, w.has, w.groups, nil); got != want || (got == 1) != (kept == 1<<n-1) {
				t.Fatalf("%s: %d losses are said to be survived, and %d are", what, got, want)
			}
		}
	}
}

// TestParityIsAPartOfACopy counts its bytes: a k-th of the longest parts, and an element.
func TestParityIsAPartOfACopy(t *testing.T) {
	for n := 2; n <= 40; n++ {
		for k := 1; k < n; k++ {
			w := newProtected(n, k)
			longest := 0
			for _, g := range w.groups {
				for _, p := range g.Pieces {
					longest = max(longest, len(pack(w.tensors, w.truth, p)))
				}
			}
			for at, p := range w.parity {
				if len(p) > longest/k+4 {
					t.Fatalf("%d members, parity of %d: %v keeps %d bytes, the longest parts have %d", n, k, at, len(p), longest)
				}
			}
		}
	}
}
