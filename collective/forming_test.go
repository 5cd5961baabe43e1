package collective

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
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

// counter is a transport that knows how many of its connections are open.
type counter struct {
	Transport
	open atomic.Int64
}

func (c *counter) hold(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	c.open.Add(1)
	return &countedConn{Conn: conn, c: c}, nil
}

func (c *counter) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return c.hold(c.Transport.Dial(ctx, addr))
}

func (c *counter) Accept(ctx context.Context) (net.Conn, error) {
	return c.hold(c.Transport.Accept(ctx))
}

type countedConn struct {
	net.Conn
	c    *counter
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.c.open.Add(-1) })
	return c.Conn.Close()
}

// TestAConnectionThatCameTooEarlyIsClosed: rank 1 is ready to share memory, rank 0 never will be,
// because rank 4 does not come, who is a neighbour of rank 0 alone.
func TestAConnectionThatCameTooEarlyIsClosed(t *testing.T) {
	const world = 6
	open := &counter{Transport: listenTCP(t)}
	eps := []*Endpoint{NewEndpoint(open)}
	eps = append(eps, endpoints(t, fabrics()[1], world-1)...)
	ctx, cancel := context.WithCancel(soon(t))
	first := options(eps, 1, 0)
	errs := each(world, func(rank int) error {
		o := options(eps, 1, rank)
		o.LocalRank, o.LocalSize = 0, 1
		if rank < 2 {
			o.LocalRank, o.LocalSize = rank, 2
		}
		switch rank {
		case 4:
			eventually(t, "rank 1 wants to share", func() bool {
				c := first.Endpoint.communicator("job", 1)
				return c != nil && len(c.shares) == 1
			})
			cancel()
			return nil
		}
		c, err := New(ctx, o)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
	for rank, err := range errs[:2] {
		if err == nil {
			t.Errorf("rank %d joined", rank)
		}
	}
	_ = eps[0].Close()
	if n := open.open.Load(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
}

// communicator is the one of a generation that lives here.
func (e *Endpoint) communicator(job string, generation uint64) *Communicator {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.live[key{job, generation}]
}

// TestWhoRunsOutOfDescriptorsBlamesNobody: it gives up, and says why, whether it dials or is dialled.
func TestWhoRunsOutOfDescriptorsBlamesNobody(t *testing.T) {
	for _, poor := range []int{0, 1} {
		eps := endpoints(t, fabrics()[1], 2)
		eps[poor].wire = func(net.Conn) (wire, error) { return nil, os.NewSyscallError("fcntl", syscall.EMFILE) }
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
