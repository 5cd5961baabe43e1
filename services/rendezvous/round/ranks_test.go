package round

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// placesOf parses "a:2 b:1": the slots 0 and 1 of node a, and slot 0 of node b.
func placesOf(t *testing.T, text string) []ident.Place {
	t.Helper()
	var out []ident.Place
	for _, f := range strings.Fields(text) {
		node, count, _ := strings.Cut(f, ":")
		n, err := strconv.Atoi(count)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			out = append(out, ident.Place{Node: ident.NodeID(node), Slot: ident.Slot(i)})
		}
	}
	return out
}

// wire formats members as Horovod sends a slot: rank,size,local rank,local size,cross rank,cross
// size.
func wire(members []tables.Member) []string {
	var out []string
	for _, m := range members {
		out = append(out, fmt.Sprintf("%s %d,%d,%d,%d,%d,%d", m.Place, m.Rank, len(members), m.LocalRank, m.LocalSize, m.CrossRank, m.CrossSize))
	}
	return out
}

// TestWorkedExamples has every worked example of Horovod's slot assignment with the effect of its
// host order. Where Horovod orders hosts by arrival, assign keeps the order of the generation
// before, and orders the others by name.
func TestWorkedExamples(t *testing.T) {
	cases := []struct {
		name   string
		nodes  string
		before map[ident.NodeID]int // first ranks of the nodes in the generation before
		hosts  []ident.NodeID
		max    int
		want   string
	}{
		{name: "even", nodes: "a:2 b:2", max: 4, want: "a/0 0,4,0,2,0,2; a/1 1,4,1,2,0,2; b/0 2,4,0,2,1,2; b/1 3,4,1,2,1,2"},
		{name: "uneven, without a limit", nodes: "a:4 b:2 c:3", want: "a/0 0,9,0,4,0,3; a/1 1,9,1,4,0,3; a/2 2,9,2,4,0,2; a/3 3,9,3,4,0,1; " +
			"b/0 4,9,0,2,1,3; b/1 5,9,1,2,1,3; c/0 6,9,0,3,2,3; c/1 7,9,1,3,2,3; c/2 8,9,2,3,1,2"},
		{name: "the first node has the fewest", nodes: "a:1 b:3 c:2", want: "a/0 0,6,0,1,0,3; b/0 1,6,0,3,1,3; b/1 2,6,1,3,0,2; b/2 3,6,2,3,0,1; " +
			"c/0 4,6,0,2,2,3; c/1 5,6,1,2,1,2"},
		{name: "cut in the middle of a node", nodes: "a:4 b:4 c:4", max: 6, want: "a/0 0,6,0,4,0,2; a/1 1,6,1,4,0,2; a/2 2,6,2,4,0,1; a/3 3,6,3,4,0,1; " +
			"b/0 4,6,0,2,1,2; b/1 5,6,1,2,1,2"},
		{name: "a node without slots is skipped", nodes: "a:2 b:1 z:0", want: "a/0 0,3,0,2,0,2; a/1 1,3,1,2,0,1; b/0 2,3,0,1,1,2"},
		{name: "one node is enough", nodes: "a:4 b:4", max: 4, want: "a/0 0,4,0,4,0,1; a/1 1,4,1,4,0,1; a/2 2,4,2,4,0,1; a/3 3,4,3,4,0,1"},
		{name: "heterogeneous", nodes: "worker-0:1 worker-1:2", want: "worker-0/0 0,3,0,1,0,2; worker-1/0 1,3,0,2,1,2; worker-1/1 2,3,1,2,0,1"},
		{
			name: "a survivor comes before a newcomer of an earlier name", nodes: "a:1 b:1", before: map[ident.NodeID]int{"b": 0},
			want: "b/0 0,2,0,1,0,2; a/0 1,2,0,1,1,2",
		},
		{
			name: "newcomers are cut, not survivors", nodes: "a:2 b:2 c:2", before: map[ident.NodeID]int{"b": 0, "c": 2}, max: 4,
			want: "b/0 0,4,0,2,0,2; b/1 1,4,1,2,0,2; c/0 2,4,0,2,1,2; c/1 3,4,1,2,1,2",
		},
		{
			name: "a host list says who is first, as -H b:2,a:1 does for Horovod", nodes: "a:1 b:2 c:1", hosts: []ident.NodeID{"b", "a"},
			want: "b/0 0,4,0,2,0,3; b/1 1,4,1,2,0,1; a/0 2,4,0,1,1,3; c/0 3,4,0,1,2,3",
		},
		{
			name: "a survivor stays before one that the list names first", nodes: "a:1 b:1", hosts: []ident.NodeID{"a", "b"},
			before: map[ident.NodeID]int{"b": 0}, want: "b/0 0,2,0,1,0,2; a/0 1,2,0,1,1,2",
		},
		{
			name: "survivors keep their order", nodes: "a:1 b:1 c:1", before: map[ident.NodeID]int{"c": 0, "a": 1, "b": 2},
			want: "c/0 0,3,0,1,0,3; a/0 1,3,0,1,1,3; b/0 2,3,0,1,2,3",
		},
		{
			name: "a newcomer takes the ranks of a node that is gone", nodes: "a:1 c:1 d:1 e:1", before: map[ident.NodeID]int{"a": 0, "c": 2, "d": 3},
			want: "a/0 0,4,0,1,0,4; e/0 1,4,0,1,1,4; c/0 2,4,0,1,2,4; d/0 3,4,0,1,3,4",
		},
		{
			name: "but not rank 0", nodes: "b:1 c:1 d:1 e:1", before: map[ident.NodeID]int{"b": 1, "c": 2, "d": 3},
			want: "b/0 0,4,0,1,0,4; e/0 1,4,0,1,1,4; c/0 2,4,0,1,2,4; d/0 3,4,0,1,3,4",
		},
		{
			name: "the first newcomer for which the ranks are enough takes them", nodes: "a:1 c:1 e:2 f:1", before: map[ident.NodeID]int{"a": 0, "c": 2},
			want: "a/0 0,5,0,1,0,4; f/0 1,5,0,1,1,4; c/0 2,5,0,1,2,4; e/0 3,5,0,2,3,4; e/1 4,5,1,2,0,1",
		},
		{
			name: "a newcomer takes the rank of a slot that is gone", nodes: "a:1 c:1 e:1", before: map[ident.NodeID]int{"a": 0, "c": 2},
			want: "a/0 0,3,0,1,0,3; e/0 1,3,0,1,1,3; c/0 2,3,0,1,2,3",
		},
		{
			name: "a node that has more workers than before needs the gap itself", nodes: "a:1 c:3 d:1 e:1", before: map[ident.NodeID]int{"a": 0, "c": 2, "d": 4},
			want: "a/0 0,6,0,1,0,4; c/0 1,6,0,3,1,4; c/1 2,6,1,3,0,1; c/2 3,6,2,3,0,1; d/0 4,6,0,1,2,4; e/0 5,6,0,1,3,4",
		},
		{
			name: "who is cut takes no ranks", nodes: "a:1 c:1 e:1", before: map[ident.NodeID]int{"a": 0, "c": 2}, max: 2,
			want: "a/0 0,2,0,1,0,2; c/0 1,2,0,1,1,2",
		},
		{name: "nobody", nodes: "", want: ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			places := placesOf(t, c.nodes)
			slices.Reverse(places) // the order of the input must not matter
			if got := strings.Join(wire(assign(places, c.before, c.hosts, c.max)), "; "); got != c.want {
				t.Errorf("\ngot  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestTooFewPlacesAreNoGeneration: the round waits for more places where Horovod ends the launch
// with "more processes than slots".
func TestTooFewPlacesAreNoGeneration(t *testing.T) {
	r := newRig()
	r.step(events.PlacementSet{Job: "j-1", Spec: r.spec, Workers: spec.Workers{Min: 4, Max: 4}, Places: placesOf(t, "a:2")})
	for _, p := range placesOf(t, "a:2") {
		r.step(events.MemberJoin{Job: "j-1", Place: p, Incarnation: "x", Attempt: 1})
	}
	if r.s.View.Generation != 0 || r.s.View.State != events.RoundStateOpen {
		t.Errorf("round is %s at %s, want open without a generation", r.s.View.State, r.s.View.Generation)
	}
}

// TestRanksOfNodesThatComeAndGo: a node that returns is like any other that comes, and one that has
// taken the ranks of another keeps them.
func TestRanksOfNodesThatComeAndGo(t *testing.T) {
	r := newRig()
	seal := func(nodes string, gone ...ident.NodeID) string {
		places := placesOf(t, nodes)
		r.step(events.PlacementSet{Job: "j-1", Spec: r.spec, Workers: spec.Workers{Min: len(places), Max: 9}, Places: places, LostNodes: gone})
		g := r.s.View.Generation
		for r.s.View.Generation == g || len(r.s.View.Members) < len(places) {
			before := r.s.Revision
			for _, p := range places {
				x := r.s.member(p)
				if x.State == active && r.s.View.State == events.RoundStateSealed && !r.s.Planned {
					continue
				}
				r.step(events.MemberJoin{
					Job: "j-1", Place: p, Incarnation: ident.Incarnation(fmt.Sprintf("%s#%d", p, x.Attempt)), Attempt: x.Attempt, Left: r.s.View.Generation,
					Planned: r.s.Planned,
				})
			}
			if r.s.Revision == before {
				r.s, _ = Machine{}.Step(r.s, events.Input{Body: events.Tick{}}, Machine{}.Deadline(r.s))
			}
		}
		var order []string
		for _, m := range r.s.View.Members {
			order = append(order, m.Place.String())
		}
		return strings.Join(order, " ")
	}
	for _, step := range []struct {
		nodes string
		gone  []ident.NodeID
		want  string
	}{
		{"a:1 b:1 c:1", nil, "a/0 b/0 c/0"},
		{"b:1 c:1", []ident.NodeID{"a"}, "b/0 c/0"},
		{"a:1 b:1 c:1", nil, "b/0 c/0 a/0"},
		{"a:1 b:1 d:1", []ident.NodeID{"c"}, "b/0 d/0 a/0"},
		{"a:1 b:1 c:1 d:1", nil, "b/0 d/0 a/0 c/0"},
		{"a:1 d:1 e:1", []ident.NodeID{"b", "c"}, "d/0 e/0 a/0"},
	} {
		if got := seal(step.nodes, step.gone...); got != step.want {
			t.Fatalf("with %s: %s, want %s", step.nodes, got, step.want)
		}
	}
}

// TestRanksProperties compares the ranks with their definition, for any places in any order.
func TestRanksProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var places []ident.Place
		before := map[ident.NodeID]int{}
		for i, r := range rapid.Permutation([]int{0, 2, 4, 7, 9, -1, -1}).Draw(t, "before") {
			if r >= 0 {
				before[ident.NodeID(fmt.Sprintf("n%d", i))] = r
			}
		}
		for i := range rapid.IntRange(0, 6).Draw(t, "nodes") {
			n := ident.NodeID(fmt.Sprintf("n%d", i))
			for _, s := range rapid.SliceOfNDistinct(rapid.IntRange(0, 7), 0, 5, rapid.ID[int]).Draw(t, "slots") {
				places = append(places, ident.Place{Node: n, Slot: ident.Slot(s)})
			}
		}
		limit := rapid.IntRange(0, 12).Draw(t, "max")
		got := assign(places, before, nil, limit)
		if again := assign(rapid.Permutation(places).Draw(t, "order"), before, nil, limit); !slices.Equal(got, again) {
			t.Fatalf("the order of the places matters: %v and %v", got, again)
		}
		if want := len(places); limit > 0 && len(got) != min(want, limit) || limit == 0 && len(got) != want {
			t.Fatalf("%d ranks of %d places with max %d", len(got), len(places), limit)
		}
		stays := func(p ident.Place) bool { _, ok := before[p.Node]; return ok }
		alone := assign(slices.DeleteFunc(slices.Clone(places), func(p ident.Place) bool { return !stays(p) }), before, nil, limit)
		kept := slices.DeleteFunc(slices.Clone(got), func(m tables.Member) bool { return !stays(m.Place) })
		if len(alone) > 0 && got[0].Place != alone[0].Place {
			t.Fatalf("rank 0 is at %s, and %s stays", got[0].Place, alone[0].Place)
		}
		for i, m := range kept {
			switch first := kept[i-m.LocalRank].Rank; {
			case i >= len(alone) || m.Place != alone[i].Place:
				t.Fatalf("newcomers change who stays: %v, without them %v", kept, alone)
			case m.Rank > alone[i].Rank && int(first) > before[m.Place.Node]:
				t.Fatalf("newcomers moved %s to %d behind its rank, %d before", m.Place, first, before[m.Place.Node])
			}
		}
		for r, m := range got {
			owners := 0 // nodes with this local rank: earlier ones, and in total
			earlier := 0
			size := 0
			for q, o := range got {
				if o.Place.Node == m.Place.Node {
					size++
				}
				if o.LocalRank == m.LocalRank {
					owners++
					if q < r {
						earlier++
					}
				}
			}
			if int(m.Rank) != r || m.LocalSize != size || m.CrossSize != owners || m.CrossRank != earlier {
				t.Fatalf("rank %d: %+v, want local size %d, cross %d of %d", r, m, size, earlier, owners)
			}
			if r == 0 {
				continue
			}
			prev := got[r-1]
			switch {
			case prev.Place.Node == m.Place.Node && (m.LocalRank != prev.LocalRank+1 || m.Place.Slot <= prev.Place.Slot):
				t.Fatalf("%s does not follow %s on its node", m.Place, prev.Place)
			case prev.Place.Node != m.Place.Node && (m.LocalRank != 0 || stays(prev.Place) && stays(m.Place) && before[prev.Place.Node] > before[m.Place.Node]):
				t.Fatalf("%s comes after %s", m.Place, prev.Place)
			}
		}
	})
}
