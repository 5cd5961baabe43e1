package collective

import (
	"fmt"
	"slices"
	"testing"
)

// machines is a group whose ranks are spread over machines of the given sizes; 1 = a
// machine with a single rank.
func machines(t *testing.T, f fabric, sizes []int) []*Communicator {
	var local [][2]int
	for _, n := range sizes {
		for i := range n {
			local = append(local, [2]int{i, n})
		}
	}
	return group(t, f, len(local), func(o *Options) {
		o.LocalRank, o.LocalSize = local[o.Rank][0], local[o.Rank][1]
		o.ChunkBytes = 32 << 10
	})
}

var layouts = [][]int{{2, 2}, {1, 1, 2}, {3, 2}, {4, 4}, {1, 3, 2}, {2, 2, 2}}

func TestOperationsAcrossMachines(t *testing.T) {
	for _, f := range fabrics()[:2] {
		for i, sizes := range layouts {
			t.Run(fmt.Sprint(f.name, sizes), func(t *testing.T) {
				comms := machines(t, fabric{f.name, func(t testing.TB, k int) Transport { return f.listen(t, 100*i+k) }}, sizes)
				if comms[len(comms)-1].nodes == nil || len(comms[0].nodes.first) != len(sizes) {
					t.Fatal("the machines were not found")
				}
				for _, length := range []int{0, 1, 7, 2048, 2049, 100_003} {
					for op := Sum; op <= Max; op++ {
						checkAllreduce[float32](t, comms, length, op)
						checkAllreduce[int64](t, comms, length, op)
					}
				}
				mustAll(t, len(comms), func(r int) error { return sequence(t, comms[r]) })
				checkReduce(t, comms)
			})
		}
	}
}

func checkReduce(t *testing.T, comms []*Communicator) {
	t.Helper()
	ctx, world := soon(t), len(comms)
	for _, length := range []int{1, 3000, 50_000} {
		for root := range world {
			bufs := make([][]int32, world)
			for r := range bufs {
				bufs[r] = slices.Repeat([]int32{int32(r + 1)}, length)
			}
			mustAll(t, world, func(r int) error { return Reduce(ctx, comms[r], bufs[r], Average, root) })
			want := int32(world*(world+1)/2) / int32(world)
			if i := slices.IndexFunc(bufs[root], func(v int32) bool { return v != want }); i >= 0 {
				t.Fatalf("root %d: element %d is %d, not %d", root, i, bufs[root][i], want)
			}
		}
	}
}

func TestWhereNobodySharesMemoryThereAreNoMachines(t *testing.T) {
	comms := machines(t, fabrics()[1], []int{1, 1, 1})
	if comms[0].nodes != nil {
		t.Fatal("three single ranks are told apart from three ranks over connections")
	}
	checkAllreduce[float32](t, comms, 1000, Sum)
}

func TestALossAcrossMachinesIsNamedByAll(t *testing.T) {
	f := fabrics()[1]
	eps := endpoints(t, f, 3)
	r := newRig(f.listen(t, 0), 0)
	victim := NewEndpoint(r)
	eps = append(eps, victim)
	comms := form(t, eps, 1, func(o *Options) { o.LocalRank, o.LocalSize = o.Rank%2, 2 })
	errs := each(4, func(rank int) error {
		if rank == 3 {
			if err := loop(soon(t), comms[3], 3, 50_000); err != nil {
				return err
			}
			r.kill()
			return nil
		}
		return loop(soon(t), comms[rank], 1e9, 50_000)
	})
	for rank, err := range errs[:3] {
		wantLost(t, rank, err, 3)
	}
	closeAll(comms)
	_ = victim.Close()
}
