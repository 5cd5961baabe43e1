// Package canceler ends one worker's part in a generation, whichever goroutine finds out first.
//
// What this package does not do: it does not decide what follows.
package canceler

import (
	"context"
	"sync"
	"time"

	"github.com/regroup-io/regroup/collective"
)

// Canceler ends a generation: its communicators, or the building of them.
type Canceler struct {
	mu      sync.Mutex
	comms   []*collective.Communicator
	cause   error
	endedAt time.Time
	cancel  context.CancelCauseFunc // of the building
}

// New returns one for a generation whose building ends with cancel.
func New(cancel context.CancelCauseFunc) *Canceler { return &Canceler{cancel: cancel} }

// Attach adds a communicator, and aborts it if the generation has ended already.
func (c *Canceler) Attach(comm *collective.Communicator) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.comms = append(c.comms, comm)
	if c.cause != nil {
		comm.Abort(c.cause)
	}
}

// Abort ends it on all ranks.
func (c *Canceler) Abort(cause error) {
	c.Failed(cause)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, comm := range c.comms {
		comm.Abort(cause)
	}
}

// Failed records that the generation has ended, and cancels the building.
func (c *Canceler) Failed(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause, c.endedAt = cause, time.Now()
		c.cancel(cause)
	}
}

// Ended returns when the generation has ended, and why; zero = it has not.
func (c *Canceler) Ended() (at time.Time, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.endedAt, c.cause
}
