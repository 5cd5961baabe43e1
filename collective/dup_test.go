package collective

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func dups(t *testing.T, comms []*Communicator) []*Communicator {
	t.Helper()
	made := make([]*Communicator, len(comms))
	mustAll(t, len(comms), func(r int) (err error) {
		made[r], err = comms[r].Dup(soon(t), "beside")
		return err
	})
	return made
}

// TestADuplicateHasAnOrderOfItsOwn: ranks call operations on the two in different orders.
func TestADuplicateHasAnOrderOfItsOwn(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		const world = 3
		comms := group(t, f, world, nil)
		second := dups(t, comms)
		mustAll(t, 2*world, func(i int) error {
			c, n := comms[i%world], 40_000
			if i >= world {
				c, n = second[i%world], 30
			}
			for step := range 50 {
				v := make([]int64, n)
				v[n-1] = int64(step * (c.Rank() + 1))
				if err := Allreduce(soon(t), c, v, Sum); err != nil {
					return err
				}
				if want := int64(step * world * (world + 1) / 2); v[n-1] != want {
					return fmt.Errorf("step %d: %d, want %d", step, v[n-1], want)
				}
			}
			return nil
		})
		closeAll(second)
		mustAll(t, world, func(r int) error { return comms[r].Barrier(soon(t)) })
	})
}

func TestADuplicateSharesTheFate(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		for name, end := range map[string]func(c, d *Communicator){
			"of the first":  func(c, _ *Communicator) { c.Abort(&PeerLostError{Rank: 2, Cause: errReason}) },
			"of the second": func(_, d *Communicator) { d.Abort(&PeerLostError{Rank: 2, Cause: errReason}) },
		} {
			t.Run(name, func(t *testing.T) {
				const world = 3
				eps := endpoints(t, f, world)
				comms := make([]*Communicator, world)
				mustAll(t, world, func(r int) (err error) {
					comms[r], err = New(soon(t), options(eps, 1, r))
					return err
				})
				second := dups(t, comms)
				end(comms[0], second[0])
				for i, err := range each(2*world, func(i int) error {
					c := append(comms, second...)[i]
					for {
						if err := c.Barrier(soon(t)); err != nil {
							return err
						}
					}
				}) {
					var lost *PeerLostError
					if !errors.As(err, &lost) || lost.Rank != 2 {
						t.Errorf("%d: %v, want that rank 2 is lost", i, err)
					}
				}
				closeAll(second)
				closeAll(comms)
				if _, err := comms[0].Dup(soon(t), "beside"); !errors.Is(err, ErrPeerLost) {
					t.Errorf("a duplicate of what has failed: %v", err)
				}
			})
		}
	})
}

func TestADuplicateIsRefused(t *testing.T) {
	comms := group(t, fabrics()[0], 2, nil)
	if _, err := comms[0].Dup(soon(t), ""); !errors.Is(err, ErrInvalid) {
		t.Errorf("without a name: %v", err)
	}
	closeAll(dups(t, comms))
	if _, err := comms[0].Dup(soon(t), "beside"); err == nil {
		t.Error("a name was used twice")
	}
	ctx, cancel := context.WithCancelCause(soon(t))
	cancel(errReason)
	if _, err := comms[1].Dup(ctx, "another"); !errors.Is(err, errReason) {
		t.Errorf("when the context has ended: %v", err)
	}
	mustAll(t, 2, func(r int) error { return comms[r].Barrier(soon(t)) })
}
