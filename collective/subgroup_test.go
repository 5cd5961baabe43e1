package collective

import (
	"errors"
	"fmt"
	"testing"
)

// TestSubgroupsRunConcurrently: three subgroups of five ranks, one of them a single rank, each with
// sums of its own.
func TestSubgroupsRunConcurrently(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		groups := [][]int{{0, 2, 4}, {1}, {1, 3}}
		comms := group(t, f, 5, nil)
		for number, ranks := range groups {
			mustAll(t, len(ranks), func(i int) error {
				d, err := comms[ranks[i]].Subgroup(soon(t), fmt.Sprint("set ", number), ranks)
				if err != nil {
					return err
				}
				if d.Rank() != i || d.World() != len(ranks) {
					return fmt.Errorf("rank %d of %d, want %d of %d", d.Rank(), d.World(), i, len(ranks))
				}
				sum := 0
				for _, r := range ranks {
					sum += r
				}
				for range 20 {
					v := []int64{int64(ranks[i])}
					if err := Allreduce(soon(t), d, v, Sum); err != nil {
						return err
					}
					if v[0] != int64(sum) {
						return fmt.Errorf("group %v: %d, want %d", ranks, v[0], sum)
					}
				}
				return d.Close()
			})
		}
		mustAll(t, 5, func(r int) error { return comms[r].Barrier(soon(t)) })
	})
}

// TestASubgroupFailsWithTheWhole: each of the two reports a loss by its own number of the rank.
func TestASubgroupFailsWithTheWhole(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		const world = 4
		ranks := []int{1, 3}
		for name, c := range map[string]struct {
			end         func(whole, subgroup []*Communicator)
			whole, part int // the rank that is lost; -1 = none of the subgroup
		}{
			"a member, seen by the subgroup": {func(_, s []*Communicator) { s[0].Abort(&PeerLostError{Rank: 1, Cause: errReason}) }, 3, 1},
			"a member, seen by the whole":    {func(w, _ []*Communicator) { w[0].Abort(&PeerLostError{Rank: 1, Cause: errReason}) }, 1, 0},
			"a rank outside of the subgroup": {func(w, _ []*Communicator) { w[0].Abort(&PeerLostError{Rank: 2, Cause: errReason}) }, 2, -1},
		} {
			t.Run(name, func(t *testing.T) {
				eps := endpoints(t, f, world)
				whole := make([]*Communicator, world)
				mustAll(t, world, func(r int) (err error) {
					whole[r], err = New(soon(t), options(eps, 1, r))
					return err
				})
				subgroup := make([]*Communicator, len(ranks))
				mustAll(t, len(ranks), func(i int) (err error) {
					subgroup[i], err = whole[ranks[i]].Subgroup(soon(t), "odd", ranks)
					return err
				})
				c.end(whole, subgroup)
				fails := func(all []*Communicator, lostRank int) {
					for i, err := range each(len(all), func(i int) error {
						for {
							if err := all[i].Barrier(soon(t)); err != nil {
								return err
							}
						}
					}) {
						var lost *PeerLostError
						switch {
						case lostRank < 0 && !errors.Is(err, ErrAborted):
							t.Errorf("%d: %v, want that it was aborted", i, err)
						case lostRank >= 0 && (!errors.As(err, &lost) || lost.Rank != lostRank):
							t.Errorf("%d: %v, want that rank %d is lost", i, err, lostRank)
						}
					}
				}
				fails(whole, c.whole)
				fails(subgroup, c.part)
				closeAll(subgroup)
				closeAll(whole)
			})
		}
	})
}

func TestInvalidSubgroups(t *testing.T) {
	comms := group(t, fabrics()[0], 2, nil)
	for _, ranks := range [][]int{nil, {1}, {1, 0}, {0, 0}, {0, 2}} {
		if _, err := comms[0].Subgroup(soon(t), "x", ranks); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v: %v, want ErrInvalid", ranks, err)
		}
	}
	if _, err := comms[0].Subgroup(soon(t), "", []int{0}); !errors.Is(err, ErrInvalid) {
		t.Errorf("no name: %v, want ErrInvalid", err)
	}
}

// TestLeavingASubgroupKeepsTheWhole: a rank that closes its subgroup has not left the whole.
func TestLeavingASubgroupKeepsTheWhole(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		whole := group(t, f, 3, nil)
		subgroup := make([]*Communicator, 2)
		mustAll(t, 2, func(i int) (err error) {
			subgroup[i], err = whole[i].Subgroup(soon(t), "both", []int{0, 1})
			return err
		})
		left := make(chan error, 1)
		go func() { left <- subgroup[0].Barrier(soon(t)) }()
		_ = subgroup[1].Close()
		if err := <-left; !errors.Is(err, ErrLeft) {
			t.Errorf("a barrier without the rank that has left: %v, want ErrLeft", err)
		}
		mustAll(t, 3, func(r int) error { return whole[r].Barrier(soon(t)) })
		_ = subgroup[0].Close()
	})
}
