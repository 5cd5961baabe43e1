package elastic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/internal/agentclient"
	"github.com/regroup-io/regroup/elastic/internal/canceler"
	"github.com/regroup-io/regroup/elastic/internal/updates"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

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
			s.updates.SetPlace(change.Place)
			s.updates.Announce(updates.Planned)
		case workerprotocol.ChangeUndone:
			s.updates.SetPlace("")
			s.updates.Withdraw()
		case workerprotocol.ChangeStop:
			s.updates.Announce(updates.Stop)
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
	s.updates.Announce(updates.Preempted)
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
