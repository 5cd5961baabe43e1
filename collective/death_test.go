package collective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/regroup-io/regroup/collective/internal/exec"
	"github.com/regroup-io/regroup/collective/kernel"
)

// everything runs all operations once, and then calls last and runs a barrier. The memory that it
// uses belongs to the caller again as soon as an operation returns: after an error it is
// overwritten at once, and overwritten reports whether another process has written there since.
type everything struct {
	used, lent [][]byte // from the heap, and from the arena
	last       func()
}

const reused = 0x5a

// memory is a tensor of n elements. Where memory is shared, every second rank has it in its arena.
func (e *everything) memory(c *Communicator, n int) Tensor {
	if c.engine.Group() != nil && c.Rank()%2 == 1 && n > 0 {
		if p, err := c.opt.Endpoint.Alloc(4 * n); err == nil {
			e.lent = append(e.lent, p)
			return Tensor{kernel.Float32, p}
		}
	}
	p := raw(make([]float32, n))
	e.used = append(e.used, p)
	return Tensor{kernel.Float32, p}
}

// reuse gives all memory to another owner.
func (e *everything) reuse(c *Communicator) {
	for i, p := range e.lent {
		c.opt.Endpoint.Free(p)
		e.lent[i], _ = c.opt.Endpoint.Alloc(len(p)) // the same, most likely
	}
	e.used = append(e.used, e.lent...)
	for _, p := range e.used {
		for i := range p {
			p[i] = reused
		}
	}
}

func (e *everything) overwritten() error {
	for _, p := range e.used {
		if !bytes.Equal(p, bytes.Repeat([]byte{reused}, len(p))) {
			return errors.New("another process wrote into memory after the operation on it had failed")
		}
	}
	return nil
}

func (e *everything) run(ctx context.Context, c *Communicator, n int) (err error) {
	memory := func(n int) Tensor { return e.memory(c, n) }
	defer func() {
		if err != nil {
			e.reuse(c)
		}
	}()
	world := c.World()
	for _, do := range []func() error{
		func() error { return c.Allreduce(ctx, memory(n), Average) },
		func() error { return c.ReduceScatter(ctx, memory(n), Sum) },
		func() error { return c.Allgather(ctx, memory(n/world), memory(n/world*world)) },
		func() error { return c.Broadcast(ctx, memory(n), 1) },
		func() error { return c.Reduce(ctx, memory(n), Max, world-1) },
		func() error { return c.Alltoall(ctx, memory(n/world*world), memory(n/world*world), nil, nil) },
		func() error {
			sent := make(chan error, 1)
			out, in := memory(n).Data, memory(n).Data
			go func() { sent <- c.Send(ctx, (c.Rank()+1)%world, out) }()
			err := c.Recv(ctx, (c.Rank()-1+world)%world, in)
			return errors.Join(err, <-sent)
		},
	} {
		if err := do(); err != nil {
			return err
		}
	}
	e.last()
	return c.Barrier(ctx)
}

// death is a generation in which one rank dies.
type death struct {
	f             fabric
	world, victim int
	tap           func(*rig, net.Conn) (exec.Conn, error)
	change        func(*Options)
	n             int  // elements
	stride        int  // 0 = each write
	steps         bool // it dies at a step in shared memory instead of at a write
}

// at runs everything, with the victim dying at that write. It returns whether the victim died, and
// what was wrong.
func (d death) at(ctx context.Context, t testing.TB, at int) (bool, error) {
	var parting atomic.Bool
	var r *rig
	eps := make([]*Endpoint, d.world)
	for i := range eps {
		tr := d.f.listen(t, at*100+i)
		if i == d.victim {
			r = newRig(tr, at)
			if d.steps {
				r.at = 0
			}
			r.tap = d.tap
			eps[i] = r.endpoint()
		} else {
			eps[i] = NewEndpoint(tr)
		}
	}
	all, died := make([]everything, d.world), false
	errs := each(d.world, func(rank int) error {
		o := options(eps, 1, rank)
		d.change(&o)
		c, err := New(ctx, o)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		if d.steps && rank == d.victim {
			step := 0
			c.engine.Group().BeforeStep = func() {
				if step++; step == at {
					died = true
					r.kill()
					runtime.Goexit()
				}
			}
		}
		all[rank].last = func() {
			if rank == d.victim {
				parting.Store(true)
			}
		}
		err = all[rank].run(ctx, c, d.n)
		if err != nil {
			if again := c.Barrier(ctx); again == nil || again.Error() != err.Error() {
				return fmt.Errorf("poisoned with %w, then %w", err, again)
			}
		}
		return err
	})
	if !d.steps {
		died = at > 0 && r.writes() >= at
	}
	err := d.verdict(errs, all, died, parting.Load())
	for _, e := range eps {
		_ = e.Close()
	}
	return died, err
}

// verdict returns what is wrong with the errors of the ranks. If the victim was in the last
// barrier, some of the others may have completed it.
func (d death) verdict(errs []error, all []everything, died, parting bool) error {
	if !died {
		return errors.Join(errs...)
	}
	for rank, err := range errs {
		if err != nil {
			if wild := all[rank].overwritten(); wild != nil {
				return fmt.Errorf("rank %d: %w", rank, wild)
			}
		}
		var lost *PeerLostError
		switch {
		case rank == d.victim && err == nil && !d.steps && !parting: // at a step its goroutine ends with it
			return errors.New("the victim saw no error")
		case rank == d.victim, err == nil && parting:
		case !errors.As(err, &lost) || !errors.Is(err, ErrPeerLost) || lost.Rank != d.victim:
			return fmt.Errorf("rank %d: %w; want rank %d lost", rank, err, d.victim)
		}
	}
	return nil
}

// everywhere has the victim die at each of its writes, some at a time: most of the time all
// ranks wait for the grace of a broken connection to pass.
func (d death) everywhere(t *testing.T) {
	t.Helper()
	ctx := soon(t)
	if _, err := d.at(ctx, t, 0); err != nil {
		t.Fatal(err)
	}
	const together = 4
	stride := max(d.stride, 1)
	for at, died := 1, true; died && !t.Failed(); at += together * stride {
		var some atomic.Bool
		each(together, func(i int) error {
			dead, err := d.at(ctx, t, at+i*stride)
			if err != nil {
				t.Errorf("world %d, died at write or step %d: %v", d.world, at+i*stride, err)
			}
			if dead {
				some.Store(true)
			}
			return nil
		})
		died = some.Load()
		if !died {
			t.Logf("it has about %d writes or steps", at)
		}
	}
}

func TestARankThatDiesAtAnyWriteIsNamedByAllOthers(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		for _, world := range []int{2, 3} {
			d := death{f: f, world: world, victim: world / 2, n: 700, change: func(o *Options) { o.ChunkBytes = 1 << 10 }}
			d.everywhere(t)
		}
	})
}
