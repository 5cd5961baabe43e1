package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/internal/agentclient"
	"github.com/regroup-io/regroup/elastic/internal/canceler"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// An update is what the agent has announced about the members. The reductions of a step and of a
// commit carry it to all ranks; the greatest wins.
const (
	updateNone      int64 = iota
	updatePreempted       // a member's node will be taken away: commit now, and continue
	updatePlanned         // the members will change
	updateStop
)

// updates are those of this worker's agent, and of the program, that not all ranks know of yet.
type updates struct {
	preempted atomic.Bool
	change    atomic.Int64           // updatePlanned or updateStop, else updateNone
	place     atomic.Pointer[string] // of workerprotocol.Change, of the last planned change; nil = none was heard of
	heard     chan struct{}          // closed with the first
}

// setPlace stores what the agent says about this worker's place.
func (u *updates) setPlace(place string) {
	if u.place.Swap(&place) == nil {
		close(u.heard)
	}
}

// placeTimeout is how long a worker that knows of a planned change from the others waits for its
// own agent, which hears of it at about the same time.
const placeTimeout = 250 * time.Millisecond

// awaitPlace returns what the agent says about this worker's place in a planned change; empty = it
// does not say.
func (u *updates) awaitPlace(ctx context.Context) string {
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

func (u *updates) pending() int64 {
	if c := u.change.Load(); c != updateNone || !u.preempted.Load() {
		return c
	}
	return updatePreempted
}

func (u *updates) announce(update int64) {
	if update == updatePreempted {
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

// withdraw revokes a planned change, unless a commit has carried it already.
func (u *updates) withdraw() { u.change.CompareAndSwap(updatePlanned, updateNone) }

// errOrphaned: this worker's agent is gone for good, as far as the worker can tell.
var errOrphaned = errors.New("the agent of this node is gone")

// repeatInterval is the wait after a change that is known already: an agent may repeat what still
// holds.
const repeatInterval = 50 * time.Millisecond

// watch watches for changes of a generation until ctx ends. Training does not need the agent, so
// failed calls are repeated. But an agent that does not answer for orphanTimeout cannot stop this
// worker any more, which then ends its generation for good: the others may have replaced it.
func watch(ctx context.Context, agent *agentclient.Client, orphanTimeout time.Duration, s *Session, c *canceler.Canceler, preempted func(PreemptionNotice)) {
	var last workerprotocol.Change
	retry, answered := agentclient.Backoff, time.Now()
	for ctx.Err() == nil {
		change, ok, err := agent.Change(ctx, orphanTimeout, s.Generation)
		if err == nil || agentclient.Answered(err) {
			answered = time.Now()
		} else if silent := time.Since(answered); silent >= orphanTimeout && ctx.Err() == nil {
			c.Abort(fmt.Errorf("%w: no answer for %v: %w", errOrphaned, silent.Round(time.Millisecond), err))
			return
		}
		if err != nil {
			retry.Sleep(ctx)
			continue
		}
		retry.Reset()
		if !ok {
			continue
		}
		if change == last || change.Generation < s.Generation {
			wait.Sleep(ctx, repeatInterval)
			continue
		}
		last = change
		switch change.Kind {
		case workerprotocol.ChangePlanned:
			s.updates.setPlace(change.Place)
			s.updates.announce(updatePlanned)
		case workerprotocol.ChangeUndone:
			s.updates.setPlace("")
			s.updates.withdraw()
		case workerprotocol.ChangeStop:
			s.updates.announce(updateStop)
		case workerprotocol.ChangeLeaving:
			preempted(PreemptionNotice{Reason: change.Reason, Until: change.Until})
		case workerprotocol.ChangeLost:
			c.Abort(peerLost(change, s.Generation))
		}
	}
}

func peerLost(c workerprotocol.Change, generation uint64) error {
	if c.Rank < 0 {
		return fmt.Errorf("the agent reports a lost peer: %s", c.Reason)
	}
	return &collective.PeerLostError{Rank: c.Rank, Generation: generation, Cause: errors.New(c.Reason)}
}

// PreemptionNotice says that this worker's node will be taken away.
type PreemptionNotice struct {
	Reason string
	Until  time.Time // when it will be gone at the latest; zero = unknown
}

// preempted handles a preemption notice: the next step tells all ranks that a commit is due,
// whatever interval the program uses, and the program's own callback is called.
//
// That is all it takes to leave: where something can take this worker's place a planned change
// follows, and Run returns after the commit that carries it.
func (r *runner) preempted(ctx context.Context, s *Session, n PreemptionNotice) {
	s.updates.announce(updatePreempted)
	if n == r.preemption {
		return // each generation gets it again
	}
	r.preemption = n
	r.options.Log.Info("this node will be taken away", "job", r.options.Job, "reason", n.Reason, "until", n.Until)
	if r.options.OnPreempt == nil {
		return
	}
	r.callbacks.Go(func() {
		if n.Until.IsZero() {
			r.options.OnPreempt(ctx, n)
			return
		}
		until, cancel := context.WithDeadline(ctx, n.Until)
		defer cancel()
		r.options.OnPreempt(until, n)
	})
}
