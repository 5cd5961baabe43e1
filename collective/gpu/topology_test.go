package gpu

import (
	"slices"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/collective/nccl"
)

func TestPartsCoverEverythingOnceAndAreEqualWhereTheyCan(t *testing.T) {
	for of := 1; of <= 5; of++ {
		for n := range 200 {
			s := newPartition(n, of)
			next, longest := 0, 0
			for i := range of {
				lo, hi := s.part(i)
				if lo != next || hi < lo {
					t.Fatalf("%d among %d: part %d is [%d, %d), not from %d", n, of, i, lo, hi, next)
				}
				if n%of == 0 && hi-lo != n/of || n%of != 0 && lo%16 != 0 {
					t.Errorf("%d among %d: part %d is [%d, %d)", n, of, i, lo, hi)
				}
				next, longest = hi, max(longest, hi-lo)
			}
			if lo, hi := s.part(of); next != n || longest != s.longest() || lo != hi {
				t.Fatalf("%d among %d: %d are covered, the longest is %d and not %d", n, of, next, longest, s.longest())
			}
		}
	}
}

func TestCardsMustFitTogether(t *testing.T) {
	good := func(sizes ...int) (all []memberInfo) {
		for _, size := range sizes {
			for i := range size {
				all = append(all, memberInfo{LocalRank: i, LocalSize: size, Chunk: 4096, NCCL: 23007})
			}
		}
		return all
	}
	l, err := newTopology(good(3, 1, 2), 4)
	if err != nil || l.node != 2 || l.local != 0 || l.rails != 1 || l.world() != 6 || l.rank() != 4 || !slices.Equal(l.railPeers(), []int{0, 3, 4}) {
		t.Errorf("%+v, %v", l, err)
	}
	if node, local := l.find(2); node != 0 || local != 2 {
		t.Errorf("rank 2 is number %d of node %d", local, node)
	}
	for name, test := range map[string]struct {
		change func([]memberInfo)
		says   string
	}{
		"order":    {func(c []memberInfo) { c[1].LocalRank = 0 }, "which rank 1 is not number 1 of"},
		"size":     {func(c []memberInfo) { c[1].LocalSize = 3 }, "rank 0 begins a node of 2"},
		"cut off":  {func(c []memberInfo) { c[3].LocalSize = 2; c[3].LocalRank = 0 }, "rank 2 begins a node of 2"},
		"version":  {func(c []memberInfo) { c[1].NCCL = 22703 }, "rank 0 has NCCL 2.30.7 and rank 1 of the same node 2.27.3"},
		"chunk":    {func(c []memberInfo) { c[3].Chunk = 64 }, "ranks 0 and 3 differ in ChunkBytes (4096, 64)"},
		"absent":   {func(c []memberInfo) { c[2].Absent = "no driver" }, "rank 2 has no GPU: not available: no driver"},
		"twice":    {func(c []memberInfo) { c[2].GPU, c[3].GPU = "GPU-7", "GPU-7" }, "ranks 2 and 3 have the same GPU, GPU-7: not available"},
		"tiny":     {func(c []memberInfo) { c[0].Chunk, c[1].Chunk, c[2].Chunk, c[3].Chunk = 32, 32, 32, 32 }, "too little for 2 nodes"},
		"too many": {func(c []memberInfo) { c[2].LocalSize = 9 }, "rank 2 begins a node of 9"},
	} {
		all := good(2, 2)
		test.change(all)
		if _, err := newTopology(all, 0); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
}

func TestWhatANodeDoesWithItsOldCommunicator(t *testing.T) {
	of := func(way nccl.Way, world int, state string, was ...int) (node []memberInfo) {
		for _, r := range was {
			node = append(node, memberInfo{Origin: commOrigin{3, 4}, Was: r, Of: world, State: state, Way: way, Reached: progress{3, 7, 1}})
		}
		return node
	}
	change := func(node []memberInfo, f func(*memberInfo)) []memberInfo {
		f(&node[1])
		return node
	}
	for _, test := range []struct {
		name string
		node []memberInfo
		want plan
	}{
		{"one GPU", of(nccl.ByRevoking, 2, stateWorking, 0), planNone},
		{"one GPU, always", []memberInfo{{Always: true}}, planNew},
		{"the same ranks", of(nccl.ByNewID, 2, stateWorking, 0, 1), planKeep},
		{"not equally far", change(of(nccl.ByRevoking, 2, stateWorking, 0, 1), func(c *memberInfo) { c.Reached.Launch = 2 }), planShrink},
		{"not equally far, old", change(of(nccl.ByShrinking, 2, stateWorking, 0, 1), func(c *memberInfo) { c.Reached.Task = 2 }), planNew},
		{"revoked", of(nccl.ByRevoking, 3, stateRevoked, 0, 2), planShrink},
		{"one revoked", change(of(nccl.ByRevoking, 2, stateWorking, 0, 1), func(c *memberInfo) { c.State = stateRevoked }), planShrink},
		{"one left, as planned", of(nccl.ByShrinking, 3, stateWorking, 0, 2), planShrink},
		{"one left, very old", of(nccl.ByNewID, 3, stateWorking, 0, 2), planNew},
		{"aborted", of(nccl.ByNewID, 3, "", 0, 2), planNew},
		{"a newcomer", change(of(nccl.ByRevoking, 2, stateRevoked, 0, 1), func(c *memberInfo) { *c = memberInfo{Way: nccl.ByRevoking} }), planNew},
		{"of another", change(of(nccl.ByRevoking, 2, stateWorking, 0, 1), func(c *memberInfo) { c.Origin.First = 0 }), planNew},
		{"in another order", of(nccl.ByRevoking, 2, stateWorking, 1, 0), planNew},
	} {
		if got := planOf(test.node); got != test.want {
			t.Errorf("%s: %s, not %s", test.name, got, test.want)
		}
	}
}
