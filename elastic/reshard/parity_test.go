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

// TestParityRebuildsWhatIsLost tries all losses of worlds of up to 7 members: what RedundancyWith
// claims is true before and after each, what is rebuilt is equal to the bit, and one loss in each
// group is survived, while a second one in a group that has parts is not.
func TestParityRebuildsWhatIsLost(t *testing.T) {
	tensors := []Tensor{
		{Name: "w", Width: 4, Shape: []int{23, 3}},
		{Name: "b", Width: 2, Shape: []int{5}},
		{Name: "bits", Width: 1, Shape: []int{16, 2, 5}},
		{Name: "step", Width: 8},
	}
	truth := randomContent(tensors)
	for n := 1; n <= 7; n++ {
		for k := 1; k <= n+1; k++ {
			has := dealt(tensors[:3], n)
			for m := range has {
				has[m] = append(has[m], Piece{Tensor: 3, Box: Whole(nil)}) // all have this one
			}
			alone := Rare(tensors, has, 1)
			members := Groups(make([]string, n), k)
			in := map[int]int{} // the group of a member
			parity := map[[2]int][]byte{}
			var kept, copied int
			for i, g := range members {
				for of, m := range g {
					in[m] = i
					copied += len(pack(tensors, truth, alone[m]))
					if len(g) == 1 {
						continue
					}
					for stripe, p := range Stripes(tensors, alone[m], len(g)-1) {
						keeper := stripe
						if keeper >= of {
							keeper++
						}
						parity[[2]int{i, keeper}] = xor(parity[[2]int{i, keeper}], pack(tensors, truth, p))
					}
				}
			}
			for _, p := range parity {
				kept += len(p)
			}
			longest := 0
			for _, p := range alone {
				longest = max(longest, len(pack(tensors, truth, p)))
			}
			if n > k && kept > n*(longest/k+4) {
				t.Fatalf("%d members, parity of %d: %d bytes are kept of %d, at most %d by one", n, k, kept, copied, longest)
			}
			for lost := range 1 << n {
				what := fmt.Sprintf("%d members, parity of %d, %b lost", n, k, lost)
				present := func(m int) bool { return lost>>m&1 == 0 }
				left := slices.Clone(has)
				perGroup := make([]int, len(members))
				groups := make([]Group, len(members))
				for i, g := range members {
					for _, m := range g {
						at := m
						if !present(m) {
							perGroup[i]++
							at, left[m] = -1, nil
						}
						groups[i].Members = append(groups[i].Members, at)
						groups[i].Pieces = append(groups[i].Pieces, alone[m])
						groups[i].Kept = append(groups[i].Kept, true)
					}
				}
				if lost == 1<<n-1 {
					continue
				}
				left = rebuildAll(t, what, tensors, truth, left, groups, parity)
				whole := len(Missing(tensors, left)) == 0
				if survived := slices.Max(perGroup) <= 1; n > 1 && survived && !whole {
					t.Fatalf("%s: %d in each group, and parts are missing", what, perGroup)
				}
				if most := slices.Max(perGroup); most > 1 && whole && needed(alone, members, lost) {
					t.Fatalf("%s: %d in each group, and nothing is missing", what, perGroup)
				}
				claim := RedundancyWith(tensors, left, groups)
				if lost == 0 && claim != min(1, n-1) {
					t.Fatalf("%s: %d are survived", what, claim)
				}
				if !whole {
					if claim != -1 {
						t.Fatalf("%s: parts are missing, and %d losses more are survived", what, claim)
					}
					continue
				}
				if claim != checkOneMore(t, what, tensors, truth, left, groups, parity) {
					t.Fatalf("%s: %d losses more are said to be survived", what, claim)
				}
			}
		}
	}
}

// needed reports whether a group with several losses has lost a part that only it protected.
func needed(alone [][]Piece, groups [][]int, lost int) bool {
	for _, g := range groups {
		gone, parts := 0, 0
		for _, m := range g {
			if lost>>m&1 == 1 {
				gone++
				parts += len(alone[m])
			}
		}
		if gone > 1 && parts > 0 {
			return true
		}
	}
	return false
}

// rebuildAll rebuilds what can be, compares it with the truth, and returns what the members have
// then.
func rebuildAll(t *testing.T, what string, tensors []Tensor, truth [][]byte, has [][]Piece, groups []Group, parity map[[2]int][]byte) [][]Piece {
	has = slices.Clone(has)
	for i, g := range groups {
		for lost, m := range g.Members {
			if m >= 0 {
				continue
			}
			for keeper, pieces := range g.Rebuilt(tensors, lost) {
				if len(pieces) == 0 {
					continue
				}
				got := slices.Clone(parity[[2]int{i, keeper}])
				for of := range g.Members {
					if of == keeper || of == lost || g.Members[of] < 0 {
						continue
					}
					got = xor(got, pack(tensors, truth, Stripes(tensors, g.Pieces[of], len(g.Members)-1)[StripeFor(of, keeper)]))
				}
				if want := pack(tensors, truth, pieces); !bytes.Equal(got[:len(want)], want) {
					t.Fatalf("%s: what position %d of group %d rebuilds of %d differs", what, keeper, i, lost)
				}
				at := g.Members[keeper]
				has[at] = append(slices.Clone(has[at]), pieces...)
			}
		}
	}
	return has
}

// checkOneMore returns 1 if each single loss more is survived.
func checkOneMore(t *testing.T, what string, tensors []Tensor, truth [][]byte, has [][]Piece, groups []Group, parity map[[2]int][]byte) int {
	for m := range has {
		if has[m] == nil {
			continue
		}
		left := slices.Clone(has)
		left[m] = nil
		fewer := make([]Group, len(groups))
		for i, g := range groups {
			fewer[i] = Group{Members: slices.Clone(g.Members), Pieces: g.Pieces, Kept: g.Kept}
			if at := slices.Index(g.Members, m); at >= 0 {
				fewer[i].Members[at] = -1
			}
		}
		left = rebuildAll(t, what, tensors, truth, left, fewer, parity)
		if len(Missing(tensors, left)) > 0 {
			return 0
		}
	}
	return 1
}
