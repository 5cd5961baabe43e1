// Package contention tells a thread that waits for another process whether it should poll, or leave
// its processor to other programs.
package contention

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// State tells a waiting member whether other programs want its processor. It then sleeps at
// once: a thread that polls uses up its turn, and the turns of those that it yields to come first,
// while a thread that sleeps is woken when its member of the group has something for it.
//
// A member notices when it polls: it does not run for a millisecond, as nothing but a thread that
// computes takes a processor for that long. It then sleeps for a while before it polls again, and
// for twice as long each time that it finds the processor taken soon after.
type State struct {
	until time.Duration // when polling is tried again
	pause time.Duration // the newest
}

const (
	takenFor   = time.Millisecond
	firstPause = 100 * time.Millisecond
	lastPause  = 2 * time.Second
)

// Sleeps reports whether a member should sleep without polling.
func (c *State) Sleeps(now time.Duration) bool { return now < c.until }

// Noticed reports whether the processor was taken between two looks of a polling member, and keeps
// the time of the newest.
func (c *State) Noticed(before *time.Duration, now time.Duration) bool {
	gap := now - *before
	*before = now
	if gap < takenFor {
		return false
	}
	if c.pause > 0 && now < c.until+c.pause {
		c.pause = min(2*c.pause, lastPause)
	} else {
		c.pause = firstPause
	}
	c.until = now + c.pause
	return true
}

// Yield lets another thread run on this processor.
func Yield() { _, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
