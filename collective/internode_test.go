package collective

import (
	"fmt"
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
				if comms[len(comms)-1].engine.Nodes() == 0 || comms[0].engine.Nodes() != len(sizes) {
					t.Fatal("the machines were not found")
				}
				for seed := range uint64(6) {
					play(t, comms, seed<<8+uint64(i), 60_000)
				}
				everyReduction(t, comms)
			})
		}
	}
}

func TestWhereNobodySharesMemoryThereAreNoMachines(t *testing.T) {
	comms := machines(t, fabrics()[1], []int{1, 1, 1})
	if comms[0].engine.Nodes() != 0 {
		t.Fatal("three single ranks are told apart from three ranks over connections")
	}
	play(t, comms, 1, 3000)
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
