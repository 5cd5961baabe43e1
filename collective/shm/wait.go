package shm

import (
	"errors"
	"sync/atomic"
	"time"
)

// ErrAborted is what operations return after Abort.
var ErrAborted = errors.New("shm: aborted")

// ErrGone is the cause of a MemberError about a member that has left, see Gone.
var ErrGone = errors.New("shm: gone")

// ErrDead is the cause of a MemberError about a member whose process has ended, though its
// connections may still be open: the system gives memory back first, which takes 0.1 ms for
// each MiB.
var ErrDead = errors.New("its process has ended")

// lookEvery is how often who sleeps looks whether the other one lives.
const lookEvery = 3 * time.Millisecond

// raise counts up and wakes whoever sleeps.
func (g *Group) raise(at int, v uint64) {
	g.step()
	g.counter(g.rank, at).Store(v)
	for q := range g.size {
		if q != g.rank && atomic.LoadUint32(g.word(q, atSleeps)) != 0 {
			g.ring(q)
		}
	}
}

func (g *Group) step() {
	if g.Step != nil {
		g.Step()
	}
}

func (g *Group) ring(rank int) {
	bell := g.word(rank, atBell)
	atomic.AddUint32(bell, 1)
	futexWake(bell)
}

// await waits until a member's counter has reached v.
func (g *Group) await(rank, at int, v uint64) error {
	g.step()
	c := g.counter(rank, at)
	for range g.spins {
		if c.Load() >= v {
			return nil
		}
		pause()
	}
	for range g.yields {
		if c.Load() >= v {
			return nil
		}
		yield()
	}
	if c.Load() >= v {
		return nil
	}
	return g.sleep(rank, c, v)
}

func (g *Group) sleep(rank int, c *atomic.Uint64, v uint64) error {
	if g.OnSleep != nil {
		g.OnSleep()
	}
	began := time.Now()
	defer func() { g.waited[rank].Add(int64(time.Since(began))) }()
	bell, sleeps := g.word(g.rank, atBell), g.word(g.rank, atSleeps)
	defer atomic.StoreUint32(sleeps, 0)
	for long := false; ; {
		heard := atomic.LoadUint32(bell)
		// Whoever counts up after this sees it, and rings; whoever did so before is seen.
		atomic.StoreUint32(sleeps, 1)
		// Before the counter: it counted up before it left, or died.
		gone, dead := g.gone[rank].Load(), long && g.vm && ended(g.peers[rank].pid)
		switch {
		case c.Load() >= v:
			return nil
		case g.aborted.Load():
			return ErrAborted
		case gone:
			return &MemberError{rank, ErrGone}
		case dead:
			return &MemberError{rank, ErrDead}
		}
		long = !futexWait(bell, heard, lookEvery)
	}
}

// Gone says that a member has ended its last operation. Whoever waits for more from it gets a
// *MemberError with ErrGone. It may be called from anywhere, also when the group is closed.
func (g *Group) Gone(member int) {
	g.gone[member].Store(true)
	g.wakeUp()
}

// Abort ends the running operation of this member and all later ones with ErrAborted. It
// may be called from anywhere, also when the group is closed.
func (g *Group) Abort() {
	g.aborted.Store(true)
	g.wakeUp()
}

// wakeUp has this member look again at what it waits for.
func (g *Group) wakeUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mem != nil {
		g.ring(g.rank)
	}
}

// Waited is for how long operations of this member have slept for another one.
func (g *Group) Waited(rank int) time.Duration { return time.Duration(g.waited[rank].Load()) }
