package collective

import (
	"context"
	"slices"
	"testing"
	"time"
)

func TestTheSlowestRankIsNamedByAll(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		const world, slow = 4, 2
		comms := group(t, f, world, func(o *Options) { o.StallAfter = 400 * time.Millisecond })
		ctx, enough := context.WithCancel(soon(t))
		go func() {
			defer enough()
			eventually(t, "all name it", func() bool {
				return !slices.ContainsFunc(comms, func(c *Communicator) bool {
					s, ok := c.Slowest()
					return !ok || s.Rank != slow || s.Share > 1 || len(c.session.Waits()) != world
				})
			})
		}()
		mustAll(t, world, func(r int) error {
			for stop := []int32{0}; stop[0] == 0; {
				if r == slow {
					time.Sleep(5 * time.Millisecond) // the work that the other ranks wait for
				}
				if ctx.Err() != nil {
					stop[0] = 1
				}
				if err := Allreduce(context.WithoutCancel(ctx), comms[r], stop, Max); err != nil {
					return err
				}
			}
			return nil
		})
	})
}
