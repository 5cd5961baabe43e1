package collective

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestDirectMessagesKeepTheirOrder(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		const world, big = 4, 3<<20 + 5
		comms := group(t, f, world, nil)
		ctx := soon(t)
		mustAll(t, world, func(r int) error {
			c := comms[r]
			errs := make(chan error, 2*world)
			for peer := range world {
				if peer == r {
					continue
				}
				go func() {
					for _, n := range []int{0, 1, big, 17} {
						if err := c.Send(ctx, peer, bytes.Repeat([]byte{byte(r + n)}, n)); err != nil {
							errs <- err
							return
						}
					}
					errs <- nil
				}()
				go func() {
					for _, n := range []int{0, 1, big, 17} {
						p := make([]byte, n)
						if err := c.Recv(ctx, peer, p); err != nil {
							errs <- err
							return
						}
						if !bytes.Equal(p, bytes.Repeat([]byte{byte(peer + n)}, n)) {
							errs <- fmt.Errorf("rank %d: wrong bytes from %d", r, peer)
							return
						}
					}
					errs <- nil
				}()
			}
			// A collective at the same time does not get into the way.
			err := Allreduce(ctx, c, make([]float32, 100000), Sum)
			for range 2 * (world - 1) {
				err = errors.Join(err, <-errs)
			}
			return err
		})
	})
}

func TestOperationsAllocateNothingThatGrowsWithTheData(t *testing.T) {
	comms := group(t, fabrics()[1], 2, func(o *Options) { o.StallAfter = time.Hour }) // no heartbeats
	small, large := 0.0, 0.0
	measure := func(n int) float64 {
		bufs := [][]float32{make([]float32, n), make([]float32, n)}
		ctx := t.Context()
		step, done := make(chan bool), make(chan error)
		go func() {
			for range step {
				done <- Allreduce(ctx, comms[1], bufs[1], Sum)
			}
			close(done)
		}()
		allocs := testing.AllocsPerRun(10, func() {
			step <- true
			if err := errors.Join(Allreduce(ctx, comms[0], bufs[0], Sum), <-done); err != nil {
				t.Error(err)
			}
		})
		close(step)
		<-done
		return allocs
	}
	small, large = measure(64<<10), measure(4<<20)
	if large > small+4 {
		t.Fatalf("%v allocations for 256 KiB, %v for 16 MiB", small, large)
	}
}

// TestLargeOperationsArriveWhole: with large messages, more than the calling thread sends alone.
func TestLargeOperationsArriveWhole(t *testing.T) {
	const world, n = 3, 5<<20 + 7
	onEachFabric(t, func(t *testing.T, f fabric) {
		comms := group(t, f, world, nil)
		ctx := soon(t)
		mustAll(t, world, func(r int) error {
			c, buf := comms[r], make([]int32, n)
			is := func(what string, lo, hi, factor, more int32) error {
				for i := lo; i < hi; i++ {
					if buf[i] != factor*i+more {
						return fmt.Errorf("rank %d: %s: element %d is %d, not %d", r, what, i, buf[i], factor*i+more)
					}
				}
				return nil
			}
			fill := func() {
				for i := range buf {
					buf[i] = int32(i + r)
				}
			}
			fill()
			if err := errors.Join(Allreduce(ctx, c, buf, Sum), is("Allreduce", 0, n, 3, 3)); err != nil {
				return err
			}
			fill()
			lo, hi := c.Segment(n, r)
			if err := errors.Join(ReduceScatter(ctx, c, buf, Sum), is("ReduceScatter", int32(lo), int32(hi), 3, 3)); err != nil {
				return err
			}
			fill()
			if err := errors.Join(Broadcast(ctx, c, buf, 1), is("Broadcast", 0, n, 1, 1)); err != nil {
				return err
			}
			fill()
			if err := Reduce(ctx, c, buf, Max, 2); err != nil || r != 2 {
				return err
			}
			return is("Reduce", 0, n, 1, 2)
		})
	})
}

// TestMessagesOfTwoOriginsDoNotMeet: each is received where it belongs, whatever the order.
func TestMessagesOfTwoOriginsDoNotMeet(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		comms := group(t, f, 2, nil)
		ctx := soon(t)
		mustAll(t, 2, func(r int) error {
			program, elastic := comms[r], comms[r].WithOrigin(OriginElastic)
			if r == 0 {
				return errors.Join(program.Send(ctx, 1, []byte{1}), elastic.Send(ctx, 1, []byte{2}))
			}
			var first, second [1]byte
			err := errors.Join(elastic.Recv(ctx, 0, first[:]), program.Recv(ctx, 0, second[:]))
			if err == nil && (first[0] != 2 || second[0] != 1) {
				err = fmt.Errorf("the messages were %d and %d", first[0], second[0])
			}
			return err
		})
	})
}
