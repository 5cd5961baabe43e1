package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/regroup-io/regroup/collective/internal/exec"
	"github.com/regroup-io/regroup/collective/kernel"
)

// cluster is the survivors of many generations, in each of which another process dies.
type cluster struct {
	f         fabric
	tap       func(*rig, net.Conn) (exec.Conn, error)
	survivors []*Endpoint
	tensors   []Tensor
}

const clusterWorld = 3

func newCluster(t *testing.T, f fabric, tap func(*rig, net.Conn) (exec.Conn, error)) *cluster {
	t.Helper()
	c := &cluster{f: f, tap: tap, survivors: endpoints(t, f, clusterWorld-1)}
	for i, e := range c.survivors {
		memory := make([]byte, 40_000)
		if i == 1 && f.name == "shm" {
			p, err := e.Alloc(len(memory))
			if err != nil {
				t.Fatal(err)
			}
			memory = p
		}
		c.tensors = append(c.tensors, Tensor{kernel.Float32, memory})
	}
	return c
}

// cycle forms a generation with a new rank, which is killed: after some operations or at one of its
// first writes, which may be before the generation has formed.
func (c *cluster) cycle(ctx context.Context, t testing.TB, n int) error {
	at := 0
	if n%3 == 0 {
		at = 1 + n/3%40
	}
	r := newRig(c.f.listen(t, 1000+n), at)
	r.tap = c.tap
	newcomer, place := r.endpoint(), n%clusterWorld
	defer func() { _ = newcomer.Close() }()
	eps := append([]*Endpoint{newcomer}, c.survivors...)
	eps[0], eps[place] = eps[place], eps[0]
	tensors := append([]Tensor{{kernel.Float32, make([]byte, 40_000)}}, c.tensors...)
	tensors[0], tensors[place] = tensors[place], tensors[0]
	var done atomic.Int32 // operations of the newcomer
	errs := each(clusterWorld, func(rank int) error {
		comm, err := New(ctx, options(eps, uint64(n+1), rank))
		if err != nil {
			return err
		}
		defer func() { _ = comm.Close() }()
		for i := 0; ; i++ {
			if rank != place && done.Load() >= int32(n%5) {
				r.kill() // while it is in an operation, mostly
			}
			if err := comm.Allreduce(ctx, tensors[rank], Average); err != nil {
				return err
			}
			if rank == place {
				done.Add(1)
			}
		}
	})
	for rank, err := range errs {
		var lost *PeerLostError
		if rank != place && (!errors.As(err, &lost) || lost.Rank != place) {
			return fmt.Errorf("%s, cycle %d: rank %d: %w; want rank %d lost", c.f.name, n, rank, err, place)
		}
	}
	return nil
}

// TestAThousandKillsAndReformsGrowNothing: the process holds no more after the last than
// after any of the first hundred.
func TestAThousandKillsAndReformsGrowNothing(t *testing.T) {
	early, cycles := 100, 1000
	if raced {
		early, cycles = 50, 200
	}
	clusters := []*cluster{newCluster(t, fabrics()[1], tapSockets), newCluster(t, fabrics()[2], nil)}
	ctx, cancel := context.WithTimeoutCause(context.Background(), 5*patience, errors.New("the test hangs"))
	defer cancel()
	var before census
	for n := range cycles {
		mustAll(t, len(clusters), func(i int) error { return clusters[i].cycle(ctx, t, n) })
		if n < early { // what a cycle leaves to the next depends on where its rank was killed
			before = takeCensus(t).withMost(before)
		}
	}
	after, ok := settled(t, takeCensus, func(c census) bool {
		return c.goroutines <= before.goroutines && !c.holdsMore(before) &&
			c.heap <= before.heap+256<<10 && c.resident <= before.resident+16<<20
	})
	t.Logf("after %4d cycles: %v", early, before)
	t.Logf("after %4d cycles: %v", cycles, after)
	if !ok {
		t.Error("something was kept, or memory has grown")
	}
}
