package reshard

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// whole reports whether the members that are not lost have everything, or can rebuild it. Bit m of
// lost is set for member m.
func whole(tensors []Tensor, has [][]Piece, groups []Group, lost int) bool {
	gone := func(m int) bool { return m < 0 || lost>>m&1 == 1 }
	left := make([][]Piece, len(has))
	for m := range has {
		if !gone(m) {
			left[m] = has[m]
		}
	}
	rebuilt := slices.Clone(left)
	for _, g := range groups {
		g.Members = slices.Clone(g.Members)
		for at, m := range g.Members {
			if gone(m) {
				g.Members[at] = -1
			}
		}
		for at, m := range g.Members {
			if m >= 0 {
				continue
			}
			for keeper, pieces := range g.Rebuilt(tensors, at) {
				if len(pieces) > 0 {
					k := g.Members[keeper]
					rebuilt[k] = slices.Concat(rebuilt[k], pieces)
				}
			}
		}
	}
	return len(Missing(tensors, rebuilt)) == 0
}

// checkSurvives loses every set of members, and of nodes, of a commit: of those with as many as
// Survives says all are survived, and of those with one more some is not.
func checkSurvives(t rapid.TB, what string, tensors []Tensor, has [][]Piece, groups []Group, nodes []string) (members, onNodes int) {
	t.Helper()
	alone := make([]string, len(has))
	for m := range alone {
		alone[m] = fmt.Sprint(m)
	}
	for _, with := range [][]string{alone, nodes} {
		names := slices.Compact(slices.Sorted(slices.Values(with)))
		claim := Survives(tensors, has, groups, with)
		fewest := len(names) // losses that are not survived
		for set := range 1 << len(names) {
			lost, n := 0, 0
			for i, name := range names {
				if set>>i&1 == 0 {
					continue
				}
				n++
				for m := range with {
					if with[m] == name {
						lost |= 1 << m
					}
				}
			}
			if n < fewest && !whole(tensors, has, groups, lost) {
				fewest = n
			}
		}
		if claim != fewest-1 {
			t.Fatalf("%s: of %v %d losses are said to be survived, and %d are", what, with, claim, fewest-1)
		}
		members, onNodes = onNodes, claim
	}
	if plain := Survives(tensors, has, groups, nil); plain != members {
		t.Fatalf("%s: without the names of nodes %d losses are said to be survived, and %d with a node for each", what, plain, members)
	}
	return members, onNodes
}

// TestSurvivesInAllSmallWorlds tries all losses of up to 6 members, on nodes of the same and of
// different sizes, with parts that are of one member, that replicas have, and that all have, with
// copies and with parity.
func TestSurvivesInAllSmallWorlds(t *testing.T) {
	tensors := []Tensor{{Name: "w", Width: 4, Shape: []int{13, 2}}, {Name: "step", Width: 8}}
	worlds := 0
	for n := 1; n <= 6; n++ {
		for replicas := 1; replicas <= n; replicas++ {
			if n%replicas != 0 {
				continue
			}
			has := make([][]Piece, n)
			for m := range has {
				has[m] = append(dealt(tensors[:1], n/replicas)[m%(n/replicas)], Piece{Tensor: 1, Box: Whole(nil)})
			}
			for _, nodes := range layouts(n) {
				for copies := range 3 {
					what := fmt.Sprintf("%d members on %v, %d replicas, %d copies", n, nodes, replicas, copies)
					rare := Rare(tensors, has, copies)
					kept := Copied(has, Copies(rare, nodes, copies))
					members, onNodes := checkSurvives(t, what, tensors, kept, nil, nodes)
					if least := min(max(copies, replicas-1), n-1); members < least {
						t.Fatalf("%s: only %d losses are survived", what, members)
					}
					if copies == 1 && largest(nodes)*2 <= n && onNodes < 1 {
						t.Fatalf("%s: no loss of a node is survived", what)
					}
					worlds++
				}
				for k := 2; k <= 4; k++ {
					what := fmt.Sprintf("%d members on %v, %d replicas, parity of %d", n, nodes, replicas, k)
					groups := Protected(Groups(nodes, k), Rare(tensors, has, 1))
					members, onNodes := checkSurvives(t, what, tensors, has, groups, nodes)
					if members < min(1, n-1) || largest(nodes) <= len(groups) && n > 1 && onNodes < 1 {
						t.Fatalf("%s: %d losses of members are survived, and %d of nodes", what, members, onNodes)
					}
					worlds++
				}
			}
		}
	}
	t.Logf("%d worlds", worlds)
}

// layouts are the ways to have n members on nodes, in their order.
func layouts(n int) (all [][]string) {
	var add func(nodes []string, node int)
	add = func(nodes []string, node int) {
		if len(nodes) == n {
			all = append(all, nodes)
			return
		}
		for size := 1; size <= n-len(nodes); size++ {
			add(append(slices.Clone(nodes), slices.Repeat([]string{fmt.Sprint(node)}, size)...), node+1)
		}
	}
	add(nil, 0)
	return all
}

// largest is the number of members of the node that has the most.
func largest(nodes []string) (n int) {
	count := map[string]int{}
	for _, node := range nodes {
		count[node]++
		n = max(n, count[node])
	}
	return n
}

// TestSurvivesAnyLeftovers: the same for any boxes, with groups of several generations, of which
// members are lost and parity is not complete.
func TestSurvivesAnyLeftovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tensors := []Tensor{{Name: "a", Width: 4, Shape: []int{5, 3}}, {Name: "b", Width: 1, Shape: []int{7}}}
		world := rapid.IntRange(1, 6).Draw(t, "world")
		has := drawPieces(t, tensors, world, 3)
		nodes := make([]string, world)
		for m := range nodes {
			nodes[m] = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "node")
			if rapid.Bool().Draw(t, "has all") {
				has[m] = append(has[m], Piece{Tensor: 0, Box: Whole(tensors[0].Shape)}, Piece{Tensor: 1, Box: Whole(tensors[1].Shape)})
			}
		}
		var groups []Group
		for range rapid.IntRange(0, 3).Draw(t, "generations") {
			lost := rapid.IntRange(0, 2).Draw(t, "lost")
			pieces := slices.Concat(has, drawPieces(t, tensors, lost, 3))
			parts := Groups(slices.Repeat([]string{""}, world+lost), rapid.IntRange(1, 3).Draw(t, "parity"))
			for _, g := range Protected(parts, pieces) {
				for at, m := range g.Members {
					if m >= world {
						g.Members[at] = -1
					}
					g.Kept[at] = rapid.IntRange(0, 3).Draw(t, "complete") > 0
				}
				groups = append(groups, g)
			}
		}
		checkSurvives(t, "", tensors, has, groups, nodes)
	})
}
