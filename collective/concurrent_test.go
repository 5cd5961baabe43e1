package collective

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// TestManyCallersShareACommunicator: goroutines call the same operation, in whatever order they are
// scheduled, while others send messages between all ranks.
func TestManyCallersShareACommunicator(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		for _, inline := range []int{0, -1} {
			const world, callers, calls = 3, 4, 40
			comms := group(t, fabric{f.name, func(t testing.TB, i int) Transport { return f.listen(t, i-10*inline) }}, world,
				func(o *Options) { o.InlineBytes = inline })
			ctx := soon(t)
			mustAll(t, world*(callers+2), func(i int) error {
				c, who := comms[i%world], i/world
				switch who {
				case callers:
					return talk(ctx, c, calls, c.Send)
				case callers + 1:
					return talk(ctx, c, calls, c.Recv)
				}
				buf := make([]int32, 5000)
				for n := range calls {
					for k := range buf {
						buf[k] = int32(c.Rank() + k)
					}
					if err := Allreduce(ctx, c, buf, Sum); err != nil {
						return err
					}
					for k, v := range buf {
						if v != int32(world*k+world*(world-1)/2) {
							return fmt.Errorf("rank %d, caller %d, call %d: element %d is %d", c.Rank(), who, n, k, v)
						}
					}
				}
				return nil
			})
		}
	})
}

// talk sends to all other ranks, or receives from them.
func talk(ctx context.Context, c *Communicator, times int, do func(context.Context, int, []byte) error) error {
	for n := range times {
		for d := 1; d < c.World(); d++ {
			if err := do(ctx, (c.Rank()+d)%c.World(), make([]byte, n*100)); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestSerialisedCallersMayCallAnything: operations of all kinds, each called by another goroutine
// than the previous one.
func TestSerialisedCallersMayCallAnything(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		const world, callers = 3, 3
		comms := group(t, f, world, nil)
		ctx := soon(t)
		mustAll(t, world, func(rank int) error {
			turns := make([]chan int, callers)
			for i := range turns {
				turns[i] = make(chan int, 1)
			}
			turns[0] <- 0
			return errors.Join(each(callers, func(i int) error {
				for n := range turns[i] {
					if n == 10*len(divergent) {
						for _, next := range turns {
							close(next)
						}
						return nil
					}
					err := divergent[n%len(divergent)].call(ctx, comms[rank])
					turns[(i+1)%callers] <- n + 1
					if err != nil {
						return err
					}
				}
				return nil
			})...)
		})
	})
}
