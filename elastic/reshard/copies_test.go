package reshard

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestHoldersAreSpread tries all distributions of up to 9 members over up to 4 nodes.
func TestHoldersAreSpread(t *testing.T) {
	var each func(nodes []string)
	each = func(nodes []string) {
		for copies := range len(nodes) + 1 {
			checkHolders(t, nodes, copies)
		}
		if len(nodes) == 7 {
			return
		}
		for k := range 4 {
			each(append(slices.Clone(nodes), fmt.Sprint(k)))
		}
	}
	each([]string{"0"})
}

func checkHolders(t *testing.T, nodes []string, copies int) {
	n := len(nodes)
	holders := Holders(nodes, copies)
	keeps := make([]int, n)
	for m, list := range holders {
		if len(list) != min(copies, n-1) {
			t.Fatalf("nodes %v, %d copies: member %d has %v", nodes, copies, m, list)
		}
		for i, h := range list {
			keeps[h]++
			if h == m || slices.Contains(list[:i], h) {
				t.Fatalf("nodes %v, %d copies: member %d has %v", nodes, copies, m, list)
			}
		}
	}
	largest := 0
	for m := range n {
		if keeps[m] != min(copies, n-1) {
			t.Fatalf("nodes %v, %d copies: member %d keeps %d", nodes, copies, m, keeps[m])
		}
		same := 0
		for _, node := range nodes {
			if node == nodes[m] {
				same++
			}
		}
		largest = max(largest, same)
	}
	if copies > 0 && largest*2 <= n {
		for m, list := range holders {
			if nodes[list[0]] == nodes[m] {
				t.Fatalf("nodes %v, %d copies: member %d has its first copy on its own node: %v", nodes, copies, m, list)
			}
		}
	}
}

// TestNeighboursMayLeave tries all runs of members, also across the last one, in all worlds of up
// to 12.
func TestNeighboursMayLeave(t *testing.T) {
	for n := 1; n <= 12; n++ {
		for copies := range n {
			nodes := make([]string, n)
			for m := range nodes {
				nodes[m] = fmt.Sprint(m / 3)
			}
			holders := Opposite(nodes, copies)
			for m, list := range holders {
				if apart := slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(list), m)))); len(apart) != copies+1 {
					t.Fatalf("%d members, %d copies: %d has %v", n, copies, m, list)
				}
			}
			for first := range n {
				leaves := func(m int) bool { return (m-first+n)%n < n*copies/(copies+1) }
				for m, list := range holders {
					if leaves(m) && !slices.ContainsFunc(list, func(h int) bool { return !leaves(h) }) {
						t.Fatalf("%d members, %d copies: from %d on some leave, and of %d only they have parts: %v", n, copies, first, m, list)
					}
				}
			}
		}
	}
}

// TestReplicasMayLeave: with the copies of what Near returns, any run of members may leave,
// whatever they had, and nothing is copied that any run leaves and that enough members have.
func TestReplicasMayLeave(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tensors := []Tensor{{Name: "a", Width: 4, Shape: []int{5, 2}}, {Name: "b", Width: 1, Shape: []int{7}}}
		n := rapid.IntRange(1, 8).Draw(t, "members")
		has := drawPieces(t, tensors, n, 4)
		for i, x := range tensors {
			m := rapid.IntRange(0, n-1).Draw(t, "who has all")
			has[m] = append(has[m], Piece{Tensor: i, Box: Whole(x.Shape)})
		}
		nodes := make([]string, n)
		for m := range nodes {
			nodes[m] = fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "node"))
		}
		copies := rapid.IntRange(0, 3).Draw(t, "copies")
		near := Near(tensors, has, nodes, copies)
		kept := Copied(has, CopiesAt(Opposite(nodes, copies), near))
		order, most := byNode(nodes), n*min(copies, n-1)/(min(copies, n-1)+1)
		// without returns what is left when a run of members has gone.
		without := func(has [][]Piece, from int) [][]Piece {
			left := slices.Clone(has)
			for k := range most {
				left[order[(from+k)%n]] = nil
			}
			return left
		}
		goes := make([]memory, n) // by where a run begins: what it takes along, without copies
		for from := range n {
			if missing := Missing(tensors, without(kept, from)); len(missing) > 0 {
				t.Fatalf("%d members from number %d on leave, and with them %v", most, from, missing)
			}
			goes[from] = contents(tensors, Missing(tensors, without(has, from)))
		}
		for m, pieces := range near {
			for _, p := range pieces {
				needed := false
				eachElement(tensors[p.Tensor].Shape, p.Box, func(e int) {
					holders := 0
					for _, of := range has {
						if contents(tensors, of)[p.Tensor][e] {
							holders++
						}
					}
					needed = needed || holders <= copies || slices.ContainsFunc(goes, func(g memory) bool { return g[p.Tensor][e] })
				})
				if !needed {
					t.Fatalf("%v of member %d is copied for nothing", p, m)
				}
			}
		}
	})
}

// TestTheClaimOfLossesIsTrue tries all losses of small worlds: as many as Survives says leave all
// of the state, whichever they are, and one more may not.
func TestTheClaimOfLossesIsTrue(t *testing.T) {
	tensors := []Tensor{{Name: "w", Width: 4, Shape: []int{23, 2}}, {Name: "b", Width: 4, Shape: []int{5}}}
	for n := 1; n <= 6; n++ {
		for copies := range n {
			has := dealt(tensors, n)
			for m, holders := range Holders(make([]string, n), copies) {
				for _, h := range holders {
					has[h] = append(has[h], dealt(tensors, n)[m]...)
				}
			}
			claim := Survives(tensors, has, nil, nil)
			if claim != copies {
				t.Fatalf("%d members with %d copies survive %d losses", n, copies, claim)
			}
			broken := false
			for lost := range 1 << n {
				left := make([][]Piece, n)
				gone := 0
				for m := range n {
					if lost>>m&1 == 1 {
						gone++
					} else {
						left[m] = has[m]
					}
				}
				needs := [][]Piece{{{Tensor: 0, Box: Whole(tensors[0].Shape)}, {Tensor: 1, Box: Whole(tensors[1].Shape)}}}
				_, err := Plan(tensors, left, append(needs, make([][]Piece, n-1)...), 1<<20)
				if err != nil && gone <= claim {
					t.Fatalf("%d members with %d copies: without %b %v", n, copies, lost, err)
				}
				broken = broken || err != nil && gone == claim+1
			}
			if !broken {
				t.Fatalf("%d members with %d copies survive one loss more than %d", n, copies, claim)
			}
		}
	}
	if got := Survives(tensors, [][]Piece{{{Tensor: 0, Box: Whole(tensors[0].Shape)}}}, nil, nil); got != -1 {
		t.Errorf("without a tensor: %d", got)
	}
}

// TestRepair restores the redundancy after every loss that is survived, in small worlds.
func TestRepair(t *testing.T) {
	tensors := []Tensor{{Name: "w", Width: 4, Shape: []int{23, 2}}, {Name: "b", Width: 4, Shape: []int{5}}}
	for n := 2; n <= 6; n++ {
		for copies := 1; copies < n; copies++ {
			nodes := make([]string, n)
			for m := range nodes {
				nodes[m] = fmt.Sprint(m / 2)
			}
			all := dealt(tensors, n)
			for m, holders := range Holders(nodes, copies) {
				for _, h := range holders {
					all[h] = append(all[h], dealt(tensors, n)[m]...)
				}
			}
			for lost := range 1 << n {
				var has [][]Piece
				var left []string
				for m := range n {
					if lost>>m&1 == 0 {
						has, left = append(has, slices.Clone(all[m])), append(left, nodes[m])
					}
				}
				if n-len(has) > copies {
					continue
				}
				before := make([]memory, len(has))
				for m := range has {
					before[m] = contents(tensors, has[m])
				}
				for _, v := range Repair(tensors, has, left, copies, 24) {
					from, to := v.Chain[0], v.Chain[1]
					eachElement(tensors[v.Tensor].Shape, v.Box, func(e int) {
						if !before[from][v.Tensor][e] || before[to][v.Tensor][e] {
							t.Fatalf("%d members with %d copies, %b lost: element %d of %s from %d to %d", n, copies, lost, e, tensors[v.Tensor].Name, from, to)
						}
					})
					has[to] = append(has[to], v.Piece)
				}
				if got, want := Survives(tensors, has, nil, nil), min(copies, len(has)-1); got != want {
					t.Fatalf("%d members with %d copies, %b lost: %d more may be lost after the repair, want %d", n, copies, lost, got, want)
				}
			}
		}
	}
}

// TestFirstAndRare: First gives each element to the lowest member that has it, and Rare finds the
// pieces with an element that no more members have than there shall be copies.
func TestFirstAndRare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tensors := []Tensor{{Name: "a", Width: 4, Shape: []int{5, 4}}, {Name: "b", Width: 1, Shape: []int{7}}, {Name: "c", Width: 8}}
		world := rapid.IntRange(1, 6).Draw(t, "world")
		has := drawPieces(t, tensors, world, 4)
		copies := rapid.IntRange(0, 3).Draw(t, "copies")
		first, rare := First(tensors, has), Rare(tensors, has, copies)
		for i, x := range tensors {
			for e := range Whole(x.Shape).Elements() {
				var holders []int
				for m := range has {
					if contents(tensors, has[m])[i][e] {
						holders = append(holders, m)
					}
				}
				for m := range has {
					if got, want := contents(tensors, first[m])[i][e], len(holders) > 0 && holders[0] == m; got != want {
						t.Fatalf("element %d of %s: member %d of %v: %t", e, x.Name, m, holders, got)
					}
					if n := len(holders); n <= copies && slices.Contains(holders, m) && !contents(tensors, rare[m])[i][e] {
						t.Fatalf("element %d of %s is with %d members, and not to be copied", e, x.Name, n)
					}
				}
			}
		}
		for m := range rare {
			for _, p := range rare[m] {
				fewest := world
				eachElement(tensors[p.Tensor].Shape, p.Box, func(e int) {
					n := 0
					for k := range has {
						if contents(tensors, has[k])[p.Tensor][e] {
							n++
						}
					}
					fewest = min(fewest, n)
				})
				if fewest > copies {
					t.Fatalf("%v of %s is copied, and %d members have it", p.Box, tensors[p.Tensor].Name, fewest)
				}
			}
		}
	})
}
