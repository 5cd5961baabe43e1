package collective

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

func TestStartedOperationsKeepTheirOrder(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		const world = 3
		comms := group(t, f, world, nil)
		ctx := soon(t)
		mustAll(t, world, func(r int) error {
			c := comms[r]
			for round := range 20 {
				var handles []*Handle
				sums := make([][]int64, 10)
				for i := range sums {
					sums[i] = slices.Repeat([]int64{int64(r + i)}, 1+i*3000)
					handles = append(handles, c.StartAllreduce(Of(sums[i]), Sum))
				}
				// It is called last and runs last, though nobody has waited for the others.
				last := []int64{int64(r)}
				if err := Allreduce(ctx, c, last, Max); err != nil || last[0] != world-1 {
					return fmt.Errorf("round %d: %v %w", round, last, err)
				}
				for i, h := range handles {
					select {
					case <-h.Done():
					default:
						return errors.New("an operation overtook one that was started before")
					}
					if err := h.Wait(ctx); err != nil {
						return err
					}
					want := int64(world*i + world*(world-1)/2)
					if k := slices.IndexFunc(sums[i], func(v int64) bool { return v != want }); k >= 0 {
						return fmt.Errorf("operation %d: element %d is %d, not %d", i, k, sums[i][k], want)
					}
				}
			}
			return nil
		})
	})
}

func TestEveryOperationCanBeStarted(t *testing.T) {
	comms := group(t, fabrics()[1], 2, nil)
	mustAll(t, 2, func(r int) error {
		c, n := comms[r], int64(r)
		scatter, gathered, root := []int64{n, n}, make([]int64, 2), []int64{n + 5}
		swapped, reduced, half := make([]int64, 2), []int64{n + 1}, []float32{float32(r) + 0.5}
		handles := []*Handle{
			c.StartReduceScatter(Of(scatter), Sum),
			c.StartAllgather(Of([]int64{n}), Of(gathered)),
			c.StartBroadcast(Of(root), 1),
			c.StartAlltoall(Of([]int64{10 * n, 10*n + 1}), Of(swapped), nil, nil),
			c.StartReduce(Of(reduced), Product, 0),
			c.StartAllreduceAs(typeOf[Float16](), Of(half), Sum),
		}
		for _, h := range handles {
			if err := h.Wait(soon(t)); err != nil {
				return err
			}
		}
		if scatter[r] != 1 || gathered[1] != 1 || root[0] != 6 || swapped[1-r] != int64(10*(1-r)+r) || half[0] != 2 || r == 0 && reduced[0] != 2 {
			return fmt.Errorf("rank %d: %v %v %v %v %v %v", r, scatter, gathered, root, swapped, half, reduced)
		}
		for _, h := range []*Handle{
			c.StartBroadcast(Of(root), 2), c.StartReduce(Of(root), Sum, -1), c.StartAllgather(Of(root), Of(root)),
			c.StartAllreduceAs(typeOf[Float16](), Of(root), Sum), c.StartAllreduce(Of(root), 99),
		} {
			if err := h.Wait(soon(t)); !errors.Is(err, ErrInvalid) {
				return fmt.Errorf("rank %d: %w", r, err)
			}
		}
		return nil
	})
}

func TestStartedOperationsEndWithTheCommunicator(t *testing.T) {
	comms := group(t, fabrics()[1], 2, nil)
	var handles []*Handle
	for range 100 {
		handles = append(handles, comms[0].StartAllreduce(Of(make([]float32, 100)), Sum))
	}
	_ = comms[0].Close()
	for _, h := range handles {
		if err := h.Wait(soon(t)); !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
	}
	if err := comms[0].StartAllreduce(Of(make([]float32, 1)), Sum).Wait(soon(t)); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}
