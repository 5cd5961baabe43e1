// Package agentwatch follows what a worker's agent says of a generation.
package agentwatch

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

// ErrOrphaned says that this worker's agent is gone for good, as far as the worker can tell.
var ErrOrphaned = errors.New("the agent of this node is gone")

// repeatInterval is the wait after a change that is known already: an agent may repeat what still
// holds.
const repeatInterval = 50 * time.Millisecond

// Watch watches for changes of a generation.
type Watch struct {
	Agent         *agentclient.Client
	OrphanTimeout time.Duration
	Generation    uint64
	Updates       *updates.Updates   // what all ranks will hear of
	Canceler      *canceler.Canceler // ends the generation
	// Leaving is called when this worker's node will be taken away.
	Leaving func(reason string, until time.Time)
}

// Run watches until ctx ends. Training does not need the agent, so failed calls are repeated. But
// an agent that does not answer for OrphanTimeout cannot stop this worker any more, which then ends
// its generation for good: the others may have replaced it.
func (w Watch) Run(ctx context.Context) {
	var last workerprotocol.Change
	retry, answered := agentclient.Backoff, time.Now()
	for ctx.Err() == nil {
		change, ok, err := w.Agent.Change(ctx, w.OrphanTimeout, w.Generation)
		if err == nil || agentclient.Answered(err) {
			answered = time.Now()
		} else if silent := time.Since(answered); silent >= w.OrphanTimeout && ctx.Err() == nil {
			w.Canceler.Abort(fmt.Errorf("%w: no answer for %v: %w", ErrOrphaned, silent.Round(time.Millisecond), err))
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
		if change == last || change.Generation < w.Generation {
			wait.Sleep(ctx, repeatInterval)
			continue
		}
		last = change
		switch change.Kind {
		case workerprotocol.ChangePlanned:
			w.Updates.SetPlace(change.Place)
			w.Updates.Announce(updates.Planned)
		case workerprotocol.ChangeUndone:
			w.Updates.SetPlace("")
			w.Updates.Withdraw()
		case workerprotocol.ChangeStop:
			w.Updates.Announce(updates.Stop)
		case workerprotocol.ChangeLeaving:
			w.Leaving(change.Reason, change.Until)
		case workerprotocol.ChangeLost:
			w.Canceler.Abort(peerLost(change, w.Generation))
		}
	}
}

func peerLost(c workerprotocol.Change, generation uint64) error {
	if c.Rank < 0 {
		return fmt.Errorf("the agent reports a lost peer: %s", c.Reason)
	}
	return &collective.PeerLostError{Rank: c.Rank, Generation: generation, Cause: errors.New(c.Reason)}
}
