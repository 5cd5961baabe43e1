package queue

import (
	"errors"
	"fmt"
	"testing"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
)

// TestJoinWithUnevenSteps: rank r makes 3*(r+1) steps. Later steps are reduced over the ranks that
// still make them.
func TestJoinWithUnevenSteps(t *testing.T) {
	const world = 3
	all := queues(t, world, nil)
	for range 3 {
		each(t, world, func(rank int) error {
			for step := range 3 * (rank + 1) {
				// Two at a time, so that they are packed.
				sum, least := []int64{int64(rank + 1)}, []float32{float32(rank + 5)}
				a := all[rank].Allreduce("sum", "", collective.Of(sum), collective.Sum, 0)
				b := all[rank].Allreduce("least", "", collective.Of(least), collective.Min, 0)
				if err := errors.Join(a.Wait(soon(t)), b.Wait(soon(t))); err != nil {
					return err
				}
				first := step / 3 // the first rank that still makes steps
				want := int64(0)
				for r := first; r < world; r++ {
					want += int64(r + 1)
				}
				if sum[0] != want || least[0] != float32(first+5) {
					return fmt.Errorf("rank %d, step %d: sum %d, want %d; least %v, want %d", rank, step, sum[0], want, least[0], first+5)
				}
			}
			h := all[rank].Join()
			if err := h.Wait(soon(t)); err != nil {
				return err
			}
			if h.Last() != world-1 {
				return fmt.Errorf("rank %d: %d joined last, want %d", rank, h.Last(), world-1)
			}
			return nil
		})
	}
}

func TestWhatCannotBeDoneWithoutThoseWhoJoined(t *testing.T) {
	all := queues(t, 3, nil)
	each(t, 3, func(rank int) error {
		if rank != 1 {
			v := []int64{1}
			for name, h := range map[string]*Handle{
				"broadcast": all[rank].Broadcast("b", "", collective.Of(v), 1),
				"allgather": all[rank].Allgather("g", "", collective.Of(v), 1, 1),
				"custom":    all[rank].Do("c", "custom", nil),
			} {
				var j *JoinedError
				if err := h.Wait(soon(t)); !errors.As(err, &j) || len(j.Ranks) != 1 || j.Ranks[0] != 1 {
					return fmt.Errorf("rank %d: %s: %w, want that rank 1 has joined", rank, name, err)
				}
			}
			if err := all[rank].Barrier("barrier").Wait(soon(t)); err != nil {
				return err
			}
		}
		return all[rank].Join().Wait(soon(t))
	})
}

// TestNeutralElementsChangeNothing, of every type and reduction.
func TestNeutralElementsChangeNothing(t *testing.T) {
	for typ := kernel.Int8; typ <= kernel.Float64; typ++ {
		for op := collective.Sum; op <= collective.Max; op++ {
			all := queues(t, 2, nil)
			each(t, 2, func(rank int) error {
				if rank == 1 {
					return all[rank].Join().Wait(soon(t))
				}
				element := identityElement(typ, collective.Product) // one
				if op == collective.Average {
					element = identityElement(typ, collective.Sum) // half of nothing
				}
				got := append([]byte(nil), element...)
				tensor := collective.Tensor{Type: typ, Data: got}
				if err := all[rank].Allreduce("x", "", tensor, op, 0).Wait(soon(t)); err != nil {
					return err
				}
				if string(got) != string(element) {
					return fmt.Errorf("%v, %v: %x became %x", typ, op, element, got)
				}
				return all[rank].Join().Wait(soon(t))
			})
		}
	}
}
