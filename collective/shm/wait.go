package shm

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/collective/internal/contention"
)

// ErrAborted is the error of operations after Abort.
var ErrAborted = errors.New("shm: aborted")

// ErrLeft is the cause of a MemberError about a member that has left; see MarkLeft.
var ErrLeft = errors.New("shm: left")

// ErrDead is the cause of a MemberError about a member whose process is dead, though its
// connections may still be open: the kernel reclaims the memory first, which takes 0.1 ms per MiB.
var ErrDead = errors.New("its process is dead")

// checkEvery is how often a sleeping member checks whether the other one is alive.
const checkEvery = 3 * time.Millisecond

// advance raises a counter and wakes sleeping members.
func (g *Group) advance(at int, v uint64) {
	g.beforeStep()
	g.counter(g.rank, at).Store(v)
	for q := range g.size {
		if q != g.rank && atomic.LoadUint32(g.word(q, offAsleep)) != 0 {
			g.ringDoorbell(q)
		}
	}
}

func (g *Group) beforeStep() {
	if g.BeforeStep != nil {
		g.BeforeStep()
	}
}

func (g *Group) ringDoorbell(rank int) {
	doorbell := g.word(rank, offDoorbell)
	atomic.AddUint32(doorbell, 1)
	futexWake(doorbell)
}

// waitFor waits until a member's counter has reached v.
func (g *Group) waitFor(rank, at int, v uint64) error {
	g.beforeStep()
	c := g.counter(rank, at)
	for range min(g.spins, spinsPerLook) {
		if c.Load() >= v {
			return nil
		}
		pause()
	}
	if c.Load() >= v || g.poll(c, v) {
		return nil
	}
	return g.sleep(rank, c, v)
}

// spinsPerLook is how often a member polls before it looks at the clock: for 4 µs.
const spinsPerLook = 128

// poll polls for as long as that is expected to be quicker than to sleep and to be woken.
func (g *Group) poll(c *atomic.Uint64, v uint64) bool {
	now := g.now()
	if g.contention.Sleeps(now) {
		return false
	}
	for n := spinsPerLook; n < g.spins; n += spinsPerLook {
		for range spinsPerLook {
			if c.Load() >= v {
				return true
			}
			pause()
		}
		if g.contention.Noticed(&now, g.now()) {
			return c.Load() >= v
		}
	}
	for range g.yields {
		contention.Yield()
		if c.Load() >= v {
			return true
		}
		if g.contention.Noticed(&now, g.now()) {
			return c.Load() >= v
		}
	}
	return c.Load() >= v
}

// now is a time of this group's clock.
func (g *Group) now() time.Duration { return time.Since(g.began) }

func (g *Group) sleep(rank int, c *atomic.Uint64, v uint64) error {
	if g.OnSleep != nil {
		g.OnSleep()
	}
	began := time.Now()
	defer func() { g.waited[rank].Add(int64(time.Since(began))) }()
	doorbell, asleep := g.word(g.rank, offDoorbell), g.word(g.rank, offAsleep)
	defer atomic.StoreUint32(asleep, 0)
	for timedOut := false; ; {
		rung := atomic.LoadUint32(doorbell)
		// A member that advances its counter after this sees it and rings; before this, its value
		// is seen.
		atomic.StoreUint32(asleep, 1)
		// Read before the counter: the member advanced it before it left or died.
		left, dead := g.left[rank].Load(), timedOut && g.vm && processDead(g.peers[rank].pid)
		switch {
		case c.Load() >= v:
			return nil
		case g.aborted.Load():
			return ErrAborted
		case left:
			return &MemberError{rank, ErrLeft}
		case dead:
			return &MemberError{rank, ErrDead}
		}
		timedOut = !futexWait(doorbell, rung, checkEvery)
	}
}

// MarkLeft says that a member has finished its last operation. Operations that wait for it fail
// with a *MemberError with ErrLeft. It may be called at any time, also after Close.
func (g *Group) MarkLeft(member int) {
	g.left[member].Store(true)
	g.wakeUp()
}

// Abort ends the running operation of this member and all later ones with ErrAborted. It may be
// called at any time, also after Close.
func (g *Group) Abort() {
	g.aborted.Store(true)
	g.wakeUp()
}

// wakeUp makes this member check again what it waits for.
func (g *Group) wakeUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mem != nil {
		g.ringDoorbell(g.rank)
	}
}

// WaitTime is how long operations of this member have slept for another one.
func (g *Group) WaitTime(rank int) time.Duration { return time.Duration(g.waited[rank].Load()) }
