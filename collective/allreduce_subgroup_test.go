package collective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/collective/kernel"
)

// divisions are groups of a world.
var divisions = [][][]int{
	{{0}},
	{{0, 1}},
	{{0}, {1}},
	{{0, 2}, {1, 3}},
	{{0, 3}, {1}, {2}},
	{{0, 1, 2, 3, 4}, {5}},
	{{0, 2, 4}, {1, 3, 5}},
}

// groupOf is the group of a rank.
func groupOf(groups [][]int, rank int) []int {
	i := slices.IndexFunc(groups, func(g []int) bool { return slices.Contains(g, rank) })
	return groups[i]
}

func worldOf(groups [][]int) (n int) {
	for _, g := range groups {
		n += len(g)
	}
	return n
}

func checkAmong(t *testing.T, comms []*Communicator, groups [][]int, dtype kernel.Type, length int, op Op) {
	t.Helper()
	inputs, bufs := make([][]byte, len(comms)), make([][]byte, len(comms))
	for r := range comms {
		inputs[r] = contribution(dtype, op, exact, length, uint64(length), r)
		bufs[r] = slices.Clone(inputs[r])
	}
	ctx := soon(t)
	mustAll(t, len(comms), func(r int) error {
		return comms[r].AllreduceSubgroup(ctx, groupOf(groups, r), Tensor{dtype, bufs[r]}, op)
	})
	for _, g := range groups {
		var of [][]byte
		for _, r := range g {
			of = append(of, inputs[r])
		}
		for _, r := range g {
			if err := judge(dtype, op, exact, of, bufs[r], 0, length); err != nil {
				t.Fatalf("%v length %d %v: rank %d of %v: %v", dtype, length, op, r, groups, err)
			}
		}
	}
}

// checkAllOf runs an allreduce of all ranks: they still agree on the next operation.
func checkAllOf(t *testing.T, comms []*Communicator, length int) {
	t.Helper()
	ctx := soon(t)
	mustAll(t, len(comms), func(r int) error {
		buf := slices.Repeat([]float32{1}, length)
		if err := Allreduce(ctx, comms[r], buf, Sum); err != nil {
			return err
		}
		if !slices.Equal(buf, slices.Repeat([]float32{float32(len(comms))}, length)) {
			return fmt.Errorf("rank %d: an Allreduce afterwards is wrong", r)
		}
		return nil
	})
}

func TestAllreduceSubgroupEqualsTheSumOfEachGroup(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		for i, groups := range divisions {
			t.Run(fmt.Sprint(groups), func(t *testing.T) {
				world := worldOf(groups)
				comms := group(t, fabric{f.name, func(t testing.TB, k int) Transport { return f.listen(t, 100*i+k) }}, world,
					func(o *Options) { o.ChunkBytes = 4 << 10 })
				for op := Sum; op <= Max; op++ {
					checkAmong(t, comms, groups, kernel.Float32, 4099, op) // more than a chunk
					checkAmong(t, comms, groups, kernel.Int64, 7, op)
				}
				for _, length := range []int{0, 1, 20_011} {
					checkAmong(t, comms, groups, kernel.Int16, length, Sum)
				}
				checkAmong(t, comms, groups, kernel.Uint8, 31, Average)
				checkAllOf(t, comms, 1000)
			})
		}
	})
}

func TestAllreduceSubgroupIgnoresSharedMemory(t *testing.T) {
	comms := machines(t, fabrics()[1], []int{3, 1})
	groups := [][]int{{0, 3}, {1}, {2}}
	for _, length := range []int{1, 100_003} {
		checkAmong(t, comms, groups, kernel.Float32, length, Sum)
		checkAllOf(t, comms, length)
	}
}

func TestAllreduceSubgroupAsIsRoundedLikeTheWire(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		const world, n = 4, 5003
		groups := [][]int{{0, 2}, {1, 3}}
		comms := group(t, f, world, nil)
		ctx := soon(t)
		for wire, unit := range map[kernel.Type]float64{kernel.Float16: 0x1p-11, kernel.BFloat16: 0x1p-9} {
			for _, op := range []Op{Sum, Average} {
				bufs, exact, size := make([][]float32, world), make([][]float64, world), make([][]float64, world)
				for r := range bufs {
					bufs[r], exact[r], size[r] = make([]float32, n), make([]float64, n), make([]float64, n)
				}
				for r := range bufs {
					rng := rand.New(rand.NewPCG(uint64(r), 3))
					for i := range n {
						v := float32(rng.NormFloat64())
						bufs[r][i] = v
						for _, q := range groupOf(groups, r) {
							exact[q][i] += float64(v)
							size[q][i] += math.Abs(float64(v))
						}
					}
				}
				mustAll(t, world, func(r int) error {
					return comms[r].AllreduceSubgroupAs(ctx, wire, groupOf(groups, r), Of(bufs[r]), op)
				})
				for r := range bufs {
					if !slices.Equal(bufs[r], bufs[(r+2)%world]) {
						t.Fatalf("%v %v: rank %d has other bits than the rest of its group", wire, op, r)
					}
					for i, v := range bufs[r] {
						sum := float64(v)
						if op == Average {
							sum *= 2
						}
						if math.Abs(sum-exact[r][i]) > 2*unit*size[r][i] {
							t.Fatalf("%v %v: rank %d element %d is %v, not %v", wire, op, r, i, sum, exact[r][i])
						}
					}
				}
			}
		}
	})
}

func TestGroupsMustBeAscendingAndHoldTheRank(t *testing.T) {
	comms := group(t, fabrics()[0], 2, nil)
	ctx, one := soon(t), Of([]float32{1})
	for name, err := range map[string]error{
		"empty":      comms[0].AllreduceSubgroup(ctx, nil, one, Sum),
		"not in":     comms[0].AllreduceSubgroup(ctx, []int{1}, one, Sum),
		"descending": comms[0].AllreduceSubgroup(ctx, []int{1, 0}, one, Sum),
		"twice":      comms[0].AllreduceSubgroup(ctx, []int{0, 0}, one, Sum),
		"too large":  comms[0].AllreduceSubgroup(ctx, []int{0, 2}, one, Sum),
		"negative":   comms[0].AllreduceSubgroup(ctx, []int{-1, 0}, one, Sum),
		"reduction":  comms[0].AllreduceSubgroup(ctx, []int{0, 1}, one, Max+1),
		"wire":       comms[0].AllreduceSubgroupAs(ctx, kernel.Int8, []int{0, 1}, one, Sum),
		"half":       comms[0].AllreduceSubgroup(ctx, []int{0, 1}, Tensor{kernel.Float32, make([]byte, 6)}, Sum),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	mustAll(t, 2, func(r int) error { return comms[r].AllreduceSubgroup(ctx, []int{0, 1}, Of([]float32{1}), Sum) })
}

func TestALossInAnyGroupIsNamedByAllGroups(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		groups := [][]int{{0, 2}, {1, 3}}
		for victim := range 4 {
			var r *rig
			eps := make([]*Endpoint, 4)
			for i := range eps {
				tr := f.listen(t, 10*victim+i)
				if i == victim {
					r = newRig(tr, 0)
					tr = r
				}
				eps[i] = NewEndpoint(tr)
			}
			comms := form(t, eps, 1, nil)
			ctx := soon(t)
			errs := each(4, func(rank int) (err error) {
				buf := Of(make([]float32, 20_000))
				for i := 0; err == nil; i++ {
					if i == 3 && rank == victim {
						r.kill()
						return errRig
					}
					err = comms[rank].AllreduceSubgroup(ctx, groupOf(groups, rank), buf, Sum)
				}
				return err
			})
			for rank, err := range errs {
				if rank != victim {
					wantLost(t, rank, err, victim)
					select {
					case <-comms[rank].Context().Done():
					case <-ctx.Done():
						t.Errorf("rank %d has failed and is not done", rank)
					}
				}
			}
			closeAll(comms)
			for _, e := range eps {
				_ = e.Close()
			}
		}
	})
}

func TestSubgroupsThatDivergeAreNamed(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		pair := func(c *Communicator) []int { return []int{c.Rank() % 2, c.Rank()%2 + 2} }
		ops := map[string]func(ctx context.Context, c *Communicator) error{
			"other group": func(ctx context.Context, c *Communicator) error {
				g := []int{0, 1, 2}
				if c.Rank() == 1 {
					g = []int{0, 1}
				}
				if c.Rank() == 3 {
					g = []int{3}
				}
				return c.AllreduceSubgroup(ctx, g, Of(make([]float32, 10)), Sum)
			},
			"no group": func(ctx context.Context, c *Communicator) error {
				if c.Rank() == 2 {
					return Allreduce(ctx, c, make([]float32, 10), Sum)
				}
				return c.AllreduceSubgroup(ctx, pair(c), Of(make([]float32, 10)), Sum)
			},
			"reduction": func(ctx context.Context, c *Communicator) error {
				return c.AllreduceSubgroup(ctx, pair(c), Of(make([]float32, 10)), Op(c.Rank()/2))
			},
			"length": func(ctx context.Context, c *Communicator) error {
				return c.AllreduceSubgroup(ctx, pair(c), Of(make([]float32, 10+c.Rank()/2)), Sum)
			},
			"wire": func(ctx context.Context, c *Communicator) error {
				if c.Rank() == 0 {
					return c.AllreduceSubgroupAs(ctx, kernel.BFloat16, pair(c), Of(make([]float32, 10)), Sum)
				}
				return c.AllreduceSubgroup(ctx, pair(c), Of(make([]float32, 10)), Sum)
			},
		}
		i := 0
		for name, op := range ops {
			i += 10
			base := i
			t.Run(name, func(t *testing.T) {
				comms := group(t, fabric{f.name, func(t testing.TB, k int) Transport { return f.listen(t, base+k) }}, 4, nil)
				ctx := soon(t)
				named := false
				for rank, err := range each(4, func(rank int) error {
					return errors.Join(op(ctx, comms[rank]), comms[rank].Barrier(ctx))
				}) {
					if !errors.Is(err, ErrDiverged) {
						t.Errorf("rank %d: %v", rank, err)
					}
					named = named || strings.Contains(err.Error(), "among ranks [")
				}
				if !named {
					t.Error("nobody says which group it was in")
				}
			})
		}
	})
}
