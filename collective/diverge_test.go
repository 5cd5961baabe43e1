package collective

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective/internal/control"
	"github.com/regroup-io/regroup/collective/kernel"
)

// divergent are operations that all differ: in the method, the type, the reduction, the root, the
// count, the type on the wire, or the origin.
var divergent = []struct {
	name string
	call func(ctx context.Context, c *Communicator) error
}{
	{"barrier", func(ctx context.Context, c *Communicator) error { return c.Barrier(ctx) }},
	{"sum", func(ctx context.Context, c *Communicator) error { return Allreduce(ctx, c, make([]float32, 1000), Sum) }},
	{"max", func(ctx context.Context, c *Communicator) error { return Allreduce(ctx, c, make([]float32, 1000), Max) }},
	{"sum of another origin", func(ctx context.Context, c *Communicator) error {
		return Allreduce(ctx, c.WithOrigin(OriginElastic), make([]float32, 1000), Sum)
	}},
	{"blobs of another origin", func(ctx context.Context, c *Communicator) error {
		_, err := c.WithOrigin(OriginElastic).AllgatherBlobs(ctx, make([]byte, c.Rank()))
		return err
	}},
	{"ints", func(ctx context.Context, c *Communicator) error { return Allreduce(ctx, c, make([]int32, 1000), Sum) }},
	{"fewer", func(ctx context.Context, c *Communicator) error { return Allreduce(ctx, c, make([]float32, 999), Sum) }},
	{"none", func(ctx context.Context, c *Communicator) error { return Allreduce[float32](ctx, c, nil, Sum) }},
	{"large", func(ctx context.Context, c *Communicator) error {
		return Allreduce(ctx, c, make([]float32, 200_000), Sum)
	}},
	{"narrow", func(ctx context.Context, c *Communicator) error {
		return c.AllreduceAs(ctx, kernel.Float16, Of(make([]float32, 1000)), Sum)
	}},
	{"narrower", func(ctx context.Context, c *Communicator) error {
		return c.AllreduceAs(ctx, kernel.BFloat16, Of(make([]float32, 1000)), Sum)
	}},
	{"scatter", func(ctx context.Context, c *Communicator) error {
		return ReduceScatter(ctx, c, make([]float32, 1000), Sum)
	}},
	{"reduce", func(ctx context.Context, c *Communicator) error { return Reduce(ctx, c, make([]float32, 1000), Sum, 0) }},
	{"reduce to 1", func(ctx context.Context, c *Communicator) error {
		return Reduce(ctx, c, make([]float32, 1000), Sum, 1)
	}},
	{"broadcast", func(ctx context.Context, c *Communicator) error { return Broadcast(ctx, c, make([]float32, 1000), 0) }},
	{"broadcast of 1", func(ctx context.Context, c *Communicator) error {
		return Broadcast(ctx, c, make([]float32, 1000), 1)
	}},
	{"gather", func(ctx context.Context, c *Communicator) error {
		return Allgather(ctx, c, make([]float32, 100), make([]float32, 100*c.World()))
	}},
	{"blobs", func(ctx context.Context, c *Communicator) error {
		_, err := c.AllgatherBlobs(ctx, make([]byte, c.Rank()))
		return err
	}},
	{"alltoall", func(ctx context.Context, c *Communicator) error {
		return Alltoall(ctx, c, make([]float32, 10*c.World()), make([]float32, 10*c.World()), nil, nil)
	}},
	{"alltoall of ints", func(ctx context.Context, c *Communicator) error {
		return Alltoall(ctx, c, make([]int32, 10*c.World()), make([]int32, 10*c.World()), nil, nil)
	}},
}

// TestDivergedProgramsFailOnAllRanks: some ranks call one operation and some another, for every
// pair. All get an error, those that got through when they call the next operation; nobody waits
// for the stall limit, which is long enough for a busy machine.
func TestDivergedProgramsFailOnAllRanks(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		for _, world := range []int{2, 3, 4, 7} {
			t.Run(fmt.Sprint(world), func(t *testing.T) {
				// Some at a time: often all ranks wait for a beat to tell them.
				const together = 12
				mustAll(t, together, func(k int) error {
					for i := range divergent {
						for j := range divergent {
							// All pairs in both orders are more than there is time for.
							if i == j || (i+j)%together != k || world > 2 && (i*5+j)%3 != world%3 || raced && (i*7+j)%4 != 0 {
								continue
							}
							if err := diverge(t, f, world, i, j); err != nil {
								return fmt.Errorf("world %d, %s against %s: %w", world, divergent[i].name, divergent[j].name, err)
							}
						}
					}
					return nil
				})
			})
		}
	})
}

func diverge(t *testing.T, f fabric, world, i, j int) error {
	eps, ctx := make([]*Endpoint, world), soon(t)
	for k := range eps {
		eps[k] = NewEndpoint(f.listen(t, (i*len(divergent)+j)*world+k))
		defer func() { _ = eps[k].Close() }()
	}
	// One rank is alone with its opinion in some worlds, and half of them in others.
	other := func(rank int) bool { return rank == (i+j)%world || world == 4 && rank == (i+j+2)%world }
	var took [7]time.Duration
	errs := each(world, func(rank int) error {
		o := options(eps, 1, rank)
		c, err := New(ctx, o)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		which, start := divergent[i], time.Now()
		if other(rank) {
			which = divergent[j]
		}
		for err = which.call(ctx, c); err == nil; {
			err = c.Barrier(ctx)
		}
		took[rank] = time.Since(start)
		return err
	})
	for rank, err := range errs {
		var d *DivergedError
		if !errors.As(err, &d) || d.Mine == d.Theirs {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
		if took[rank] > control.DefaultStallAfter {
			return fmt.Errorf("rank %d: it took %v", rank, took[rank])
		}
	}
	return nil
}
