package elastic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/internal/updates"
	"github.com/regroup-io/regroup/elastic/statesync"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// probed is a newcomer's transport until it is a member: what it dials are visits to holders, and a
// test may break them.
type probed struct {
	collective.Transport
	dialed atomic.Int64
	dial   func(n int64) error               // before the n-th dial, from 1; nil = all may pass
	read   func(total int64, p []byte) error // after a read of p, total bytes in all; nil = nothing
	total  atomic.Int64
	off    atomic.Bool // it is a member
	addr   string      // that it says it has; empty = the true one
}

func (t *probed) Addr() string { return cmp.Or(t.addr, t.Transport.Addr()) }

type probedConn struct {
	net.Conn
	t *probed
}

func (t *probed) Dial(ctx context.Context, address string) (net.Conn, error) {
	if n := t.dialed.Add(1); t.dial != nil {
		if err := t.dial(n); err != nil {
			return nil, err
		}
	}
	c, err := t.Transport.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return probedConn{c, t}, nil
}

func (c probedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.t.off.Load() {
		return n, err
	}
	total := c.t.total.Add(int64(n))
	if c.t.read != nil && n > 0 {
		if err := c.t.read(total, p[:n]); err != nil {
			_ = c.Close()
			return 0, err
		}
	}
	return n, err
}

var errInterrupted = errors.New("interrupted by the test")

// grow runs a fleet of two that a third worker joins while it trains, and returns how many were
// done at the end. The members wait near their end until the newcomer is in, or has ended.
func grow(t *testing.T, f *fleet, newcomer *probed) int {
	t.Helper()
	f.ballast = 3*statesync.ChunkBytes + 100
	f.wrap = func(name string, tr collective.Transport) collective.Transport {
		if name != "late" {
			return tr
		}
		newcomer.Transport = tr
		return newcomer
	}
	f.hub.OnSeal = func(_ uint64, members []string) { newcomer.off.Store(slices.Contains(members, "late")) }
	var once sync.Once
	before := f.onStep
	f.onStep = func(ctx context.Context, w *worker, s *Session) error {
		if before != nil {
			if err := before(ctx, w, s); err != nil {
				return err
			}
		}
		if s.World >= 3 || s.Step() < 6 {
			return nil
		}
		once.Do(func() { f.start("late") })
		wait.Sleep(ctx, time.Millisecond)
		if s.Step() == 30 {
			eventually(t, func() bool {
				ended := false
				f.hub.Update(func() { ended = !f.hub.Alive["late"] })
				return s.updates.Pending() == updates.Planned || ended || s.comm.Failed() != nil
			})
		}
		return nil
	}
	f.start("w0")
	f.start("w1")
	f.finish()
	return f.check("w0", "w1")
}

// calm checks that no member ever left a generation in need.
func (f *fleet) calm() {
	f.t.Helper()
	for _, j := range f.hub.Joins {
		if j.Left > 0 && !j.Planned {
			f.t.Errorf("a member left its generation: %+v", j)
		}
	}
}

func TestNewcomerHasTheStateBeforeAnybodyPauses(t *testing.T) {
	f, late := newFleet(t, 2), &probed{}
	if done := grow(t, f, late); done != 3 || f.hub.Generation != 2 {
		t.Errorf("%d workers are done in generation %d, want 3 in 2", done, f.hub.Generation)
	}
	f.calm()
	if len(f.hub.Prefetches) == 0 || late.total.Load() < 3*statesync.ChunkBytes {
		t.Errorf("the newcomer fetched %d bytes aside, was given holders %d times", late.total.Load(), len(f.hub.Prefetches))
	}
	// What it lacks when the members leave is what they have changed since, not the whole.
	if got := f.hub.FirstSteps[2]["late"].First.SyncBytes; got > 2*statesync.ChunkBytes {
		t.Errorf("it received %d bytes while all waited", got)
	}
}

// TestPrefetchBreaksAtEveryPoint: whatever goes wrong with a prefetch is the newcomer's business.
// It comes in all the same, the members leave their generation once, at a commit, and all end with
// the same exact state.
func TestPrefetchBreaksAtEveryPoint(t *testing.T) {
	breakAt := func(at ...int64) func(int64, []byte) error {
		var n atomic.Int64
		return func(total int64, _ []byte) error {
			if i := n.Load(); int(i) < len(at) && total >= at[i] && n.CompareAndSwap(i, i+1) {
				return errInterrupted
			}
			return nil
		}
	}
	var flipped atomic.Bool
	for _, c := range []struct {
		name     string
		newcomer *probed
		mislead  func(*workerprotocol.Assignment)
		within   time.Duration
	}{
		{name: "the first holders refuse", newcomer: &probed{dial: func(n int64) error {
			if n <= 3 {
				return errInterrupted
			}
			return nil
		}}},
		{name: "no holder answers", within: 100 * time.Millisecond, mislead: func(a *workerprotocol.Assignment) {
			a.Peers = map[int]string{0: "nobody", 1: "nobody either"}
		}, newcomer: &probed{}},
		{name: "wrong token", within: 100 * time.Millisecond, mislead: func(a *workerprotocol.Assignment) { a.Token = "guess" }, newcomer: &probed{}},
		{name: "no holders at all", within: 100 * time.Millisecond, mislead: func(a *workerprotocol.Assignment) { a.Peers = nil }, newcomer: &probed{}},
		{name: "hung up in the handshake", newcomer: &probed{read: breakAt(1, 40)}},
		{name: "hung up before the commit", newcomer: &probed{read: breakAt(100, 300)}},
		{name: "hung up within leaves", newcomer: &probed{read: breakAt(statesync.ChunkBytes/2, statesync.ChunkBytes+statesync.ChunkBytes/2, 3*statesync.ChunkBytes)}},
		{name: "a corrupt leaf", newcomer: &probed{read: func(total int64, p []byte) error {
			if total > 2*statesync.ChunkBytes && flipped.CompareAndSwap(false, true) {
				p[len(p)-1] ^= 1
			}
			return nil
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 2)
			f.hub.Mislead, f.within = c.mislead, c.within
			if done := grow(t, f, c.newcomer); done != 3 || f.hub.Generation != 2 {
				t.Errorf("%d workers are done in generation %d, want 3 in 2", done, f.hub.Generation)
			}
			f.calm()
		})
	}
}

// TestNewcomerIsKilledWhileItWarmsUp: nobody else notices.
func TestNewcomerIsKilledWhileItWarmsUp(t *testing.T) {
	for _, at := range []int64{1, 30, 200, statesync.ChunkBytes, 3 * statesync.ChunkBytes} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			f, late := newFleet(t, 2), &probed{}
			late.read = func(total int64, _ []byte) error {
				if total < at {
					return nil
				}
				go f.kill("late")
				return errInterrupted
			}
			if done := grow(t, f, late); done != 2 || f.hub.Generation != 1 {
				t.Errorf("%d workers are done in generation %d, want 2 in 1", done, f.hub.Generation)
			}
			f.calm()
		})
	}
}

// TestGenerationEndsWhileANewcomerWarmsUp kills a member of three: those that are left regroup, and
// the newcomer takes its prefetch on in their generation with what it has.
func TestGenerationEndsWhileANewcomerWarmsUp(t *testing.T) {
	for _, victim := range []string{"w1", "w2"} {
		for _, at := range []int64{100, statesync.ChunkBytes + 1, 3*statesync.ChunkBytes + 200} {
			t.Run(fmt.Sprint(victim, " at ", at), func(t *testing.T) {
				t.Parallel()
				f, late := newFleet(t, 3), &probed{}
				var once sync.Once
				late.read = func(total int64, _ []byte) error {
					if total >= at {
						once.Do(func() { f.kill(victim) })
					}
					return nil
				}
				f.onStep = func(ctx context.Context, w *worker, s *Session) error {
					if s.Generation == 1 {
						if s.World == 3 && s.Step() == 6 && w.name == "w0" {
							f.start("late")
						}
						if s.Step() >= 6 {
							wait.Sleep(ctx, 2*time.Millisecond)
						}
						if s.Step() == 30 {
							eventually(t, func() bool {
								return s.comm.Failed() != nil || s.updates.Pending() == updates.Planned || ctx.Err() != nil
							})
						}
					}
					if s.Generation == 2 && s.World == 2 && s.Step() == 32 {
						eventually(t, func() bool { return s.updates.Pending() == updates.Planned || s.comm.Failed() != nil })
					}
					return nil
				}
				f.ballast = 3*statesync.ChunkBytes + 100
				f.wrap = func(name string, tr collective.Transport) collective.Transport {
					if name != "late" {
						return tr
					}
					late.Transport = tr
					return late
				}
				for i := range 3 {
					f.start(fmt.Sprint("w", i))
				}
				f.finish()
				if done := f.check("w0", "w1", "w2"); done != 3 {
					t.Errorf("%d workers are done in generation %d, want 3", done, f.hub.Generation)
				}
			})
		}
	}
}

// TestNewcomerThatCanNotBeReachedStaysOut: it would break the generation that it joins.
func TestNewcomerThatCanNotBeReachedStaysOut(t *testing.T) {
	f := newFleet(t, 2)
	f.within = 150 * time.Millisecond
	if done := grow(t, f, &probed{addr: "wrong"}); done != 2 || f.hub.Generation != 1 {
		t.Errorf("%d workers are done in generation %d, want 2 in 1", done, f.hub.Generation)
	}
	f.calm()
	if err := f.workers["late"].err; !errors.Is(err, statesync.ErrUnreachable) {
		t.Errorf("error %v, want that it can not be reached", err)
	}
}

// TestNewcomerWithAnotherProgramStaysOut: its state would fail the sync of all.
func TestNewcomerWithAnotherProgramStaysOut(t *testing.T) {
	f := newFleet(t, 2)
	f.other = "late"
	if done := grow(t, f, &probed{}); done != 2 || f.hub.Generation != 1 {
		t.Errorf("%d workers are done in generation %d, want 2 in 1", done, f.hub.Generation)
	}
	f.calm()
	if err := f.workers["late"].err; !errors.Is(err, statesync.ErrOtherProgram) {
		t.Errorf("error %v, want that it is another program", err)
	}
}

// TestAStuckNewcomerHoldsNobodyUp: it reads nothing until the members have made many commits more.
func TestAStuckNewcomerHoldsNobodyUp(t *testing.T) {
	f, late := newFleet(t, 2), &probed{}
	f.every = 1
	var step atomic.Uint64
	f.onStep = func(_ context.Context, _ *worker, s *Session) error { step.Store(s.Step()); return nil }
	var from atomic.Uint64
	late.read = func(total int64, _ []byte) error {
		if total > statesync.ChunkBytes && from.CompareAndSwap(0, step.Load()) {
			eventually(t, func() bool { return step.Load() >= 25 })
		}
		return nil
	}
	if done := grow(t, f, late); done != 3 || f.hub.Generation != 2 {
		t.Errorf("%d workers are done in generation %d, want 3 in 2", done, f.hub.Generation)
	}
	if from.Load() > 20 {
		t.Errorf("it was stuck from step %d on, which proves little", from.Load())
	}
	f.calm()
}

// TestABrokenPrefetchLeavesNoDescriptor counts them around fleets on TCP whose newcomer is cut off
// again and again.
func TestABrokenPrefetchLeavesNoDescriptor(t *testing.T) {
	descriptors := func() int {
		d, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(d)
	}
	run := func() {
		t.Run("fleet", func(t *testing.T) {
			f, late := newFleet(t, 2), &probed{}
			f.tcp = true
			var cuts atomic.Int64
			late.read = func(total int64, _ []byte) error {
				if n := cuts.Load(); n < 6 && total > n*statesync.ChunkBytes/2 && cuts.CompareAndSwap(n, n+1) {
					return errInterrupted
				}
				return nil
			}
			if done := grow(t, f, late); done != 3 {
				t.Errorf("%d workers are done, want 3", done)
			}
		})
	}
	run() // what the runtime opens once
	before := descriptors()
	for range 3 {
		run()
	}
	eventually(t, func() bool { return descriptors() <= before })
}

// TestRandomCutsOfAPrefetch breaks the newcomer's connections at random places, again and again.
func TestRandomCutsOfAPrefetch(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 2))
			var mu sync.Mutex
			next, cuts := rng.Int64N(statesync.ChunkBytes), 1+rng.IntN(5)
			late := &probed{}
			late.read = func(total int64, _ []byte) error {
				mu.Lock()
				defer mu.Unlock()
				if cuts == 0 || total < next {
					return nil
				}
				cuts--
				next = total + rng.Int64N(2*statesync.ChunkBytes)
				return io.ErrUnexpectedEOF
			}
			f := newFleet(t, 2)
			if done := grow(t, f, late); done != 3 || f.hub.Generation != 2 {
				t.Errorf("%d workers are done in generation %d, want 3 in 2", done, f.hub.Generation)
			}
			f.calm()
		})
	}
}
