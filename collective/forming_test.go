package collective

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/regroup-io/regroup/collective/internal/exec"
)

// mute is a transport that cannot tell whether the process at one address has died: nothing
// there answers any more.
type mute struct {
	Transport
	to   string
	over *atomic.Bool
}

func (m mute) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if addr == m.to && m.over.Load() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return m.Transport.Dial(ctx, addr)
}

// TestWhoDiesWhileMemoryIsSharedIsNamed: the one to whom the others talk then hears of it from a
// connection that the rest has not. They must not take it for the dead one.
func TestWhoDiesWhileMemoryIsSharedIsNamed(t *testing.T) {
	const world, victim = 3, 2
	for at := 1; at <= 6; at++ {
		var over atomic.Bool
		r := newRig(listenTCP(t), 0)
		r.when = func(dial, n int) bool {
			// After those to its neighbours it dials the first of the machine.
			die := dial == world && n == at
			if die {
				over.Store(true)
			}
			return die
		}
		eps := make([]*Endpoint, world)
		for i := range eps {
			if i == victim {
				eps[i] = NewEndpoint(r)
			} else {
				eps[i] = NewEndpoint(mute{listenTCP(t), r.Addr(), &over})
			}
		}
		errs := each(world, func(rank int) error {
			o := options(eps, 1, rank)
			o.LocalRank, o.LocalSize = rank, world
			c, err := New(soon(t), o)
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			return c.Barrier(soon(t))
		})
		for rank, err := range errs {
			if rank != victim && over.Load() {
				wantLost(t, rank, err, victim)
			}
		}
		for _, e := range eps {
			_ = e.Close()
		}
		t.Logf("write %d: died %t", at, over.Load())
	}
}

// TestWhoRunsOutOfDescriptorsBlamesNobody: it aborts and says why, whether it dials or is dialed.
func TestWhoRunsOutOfDescriptorsBlamesNobody(t *testing.T) {
	for _, poor := range []int{0, 1} {
		eps := endpoints(t, fabrics()[1], 2)
		eps[poor].newConn = func(net.Conn) (exec.Conn, error) { return nil, os.NewSyscallError("fcntl", syscall.EMFILE) }
		wantAborted(t, form(t, eps, 1, nil), poor)
	}
	broke := &noSocket{Transport: listenTCP(t)}
	eps := append([]*Endpoint{NewEndpoint(broke)}, endpoints(t, fabrics()[1], 1)...)
	comms := form(t, eps, 1, nil)
	broke.now.Store(true)
	wantAborted(t, comms, 0)
	_ = eps[0].Close()
}

type noSocket struct {
	Transport
	now atomic.Bool
}

func (n *noSocket) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if n.now.Load() {
		return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}
	}
	return n.Transport.Dial(ctx, addr)
}

// wantAborted checks that an operation fails because a rank has too few descriptors.
func wantAborted(t *testing.T, comms []*Communicator, rank int) {
	t.Helper()
	for r, err := range each(len(comms), func(r int) error { return comms[r].Barrier(soon(t)) }) {
		var aborted *AbortedError
		if !errors.As(err, &aborted) || aborted.Rank != rank {
			t.Errorf("rank %d: %v; want rank %d to give up", r, err, rank)
		}
	}
	closeAll(comms)
}
