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
					return !ok || s.Rank != slow || s.Share > 1 || len(c.Waits()) != world
				})
			})
		}()
		mustAll(t, world, func(r int) error {
			for stop := []int32{0}; stop[0] == 0; {
				if r == slow {
					time.Sleep(5 * time.Millisecond) // its work
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

func TestNewsAreMergedAndBounded(t *testing.T) {
	var a, b waits
	for rank := range 3 * maxNews {
		a.add((&waits{news: []news{{uint32(rank), 1, uint32(3*maxNews - rank)}}}).encode(), 3*maxNews)
	}
	if len(a.news) != maxNews || a.news[0].rank != 3*maxNews-1 {
		t.Fatal(len(a.news), a.news[0])
	}
	b.put(news{rank: 3*maxNews - 1, period: 2, share: 9})
	b.add(a.encode(), 3*maxNews)
	if i := slices.IndexFunc(b.news, func(n news) bool { return n.rank == 3*maxNews-1 }); b.news[i].share != 9 {
		t.Fatal("old news replaced newer ones")
	}
	b.add(a.encode(), 1)
	b.add([]byte{1, 2, 3}, 1)
}
