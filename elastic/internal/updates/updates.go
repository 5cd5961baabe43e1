// Package updates collects what a worker hears about the members of its job, until all ranks know
// of it.
package updates

import (
	"context"
	"sync/atomic"
	"time"
)

// An update is what the agent has announced about the members. The reductions of a step and of a
// commit carry it to all ranks; the greatest wins.
const (
	None      int64 = iota
	Preempted       // a member's node will be taken away: commit now, and continue
	Planned         // the members will change
	Stop
)

// Updates are those of this worker's agent, and of the program, that not all ranks know of yet.
type Updates struct {
	preempted atomic.Bool
	change    atomic.Int64           // Planned or Stop, else None
	place     atomic.Pointer[string] // of workerprotocol.Change, of the last planned change; nil = none was heard of
	heard     chan struct{}          // closed with the first
}

// New returns no updates.
func New() *Updates { return &Updates{heard: make(chan struct{})} }

// SetPlace stores what the agent says about this worker's place.
func (u *Updates) SetPlace(place string) {
	if u.place.Swap(&place) == nil {
		close(u.heard)
	}
}

// placeTimeout is how long a worker that knows of a planned change from the others waits for its
// own agent, which hears of it at about the same time.
const placeTimeout = 250 * time.Millisecond

// AwaitPlace returns what the agent says about this worker's place in a planned change; empty = it
// does not say.
func (u *Updates) AwaitPlace(ctx context.Context) string {
	select {
	case <-u.heard:
	case <-time.After(placeTimeout):
	case <-ctx.Done():
	}
	if place := u.place.Load(); place != nil {
		return *place
	}
	return ""
}

// Pending returns the greatest update.
func (u *Updates) Pending() int64 {
	if c := u.change.Load(); c != None || !u.preempted.Load() {
		return c
	}
	return Preempted
}

// Announce adds an update.
func (u *Updates) Announce(update int64) {
	if update == Preempted {
		u.preempted.Store(true)
		return
	}
	for {
		known := u.change.Load()
		if known >= update || u.change.CompareAndSwap(known, update) {
			return
		}
	}
}

// Saved says that all have committed since Preempted was announced.
func (u *Updates) Saved() { u.preempted.Store(false) }

// Withdraw revokes a planned change, unless a commit has carried it already.
func (u *Updates) Withdraw() { u.change.CompareAndSwap(Planned, None) }
