package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/collective"
)

// sameNews is the pause after news that this worker has had before: an agent may repeat what still holds.
const sameNews = 50 * time.Millisecond

// lifeline is how the end of a generation reaches its communicator, also while that is still being built.
type lifeline struct {
	mu      sync.Mutex
	comm    *collective.Communicator
	cause   error
	noticed time.Time
	cut     context.CancelCauseFunc // ends the building
}

// attach takes the communicator over, and aborts it if the end came before.
func (l *lifeline) attach(c *collective.Communicator) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.comm = c
	if l.cause != nil {
		c.Abort(l.cause)
	}
}

// end aborts the generation.
func (l *lifeline) end(cause error) {
	l.notice(cause)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.comm != nil {
		l.comm.Abort(cause)
	}
}

// notice records when the end was first known, and ends what is being built.
func (l *lifeline) notice(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.cause, l.noticed = cause, time.Now()
		l.cut(cause)
	}
}

// orphaned says that there is no next generation for this worker.
func (l *lifeline) orphaned() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(l.cause, errOrphaned) {
		return l.cause
	}
	return nil
}

// noticedAt is that time; zero = it has not ended.
func (l *lifeline) noticedAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.noticed
}

// errOrphaned: this worker's agent is gone for good, as far as it can tell.
var errOrphaned = errors.New("the agent of this node is gone")

// watch asks the agent for news about a generation until ctx ends. Training needs no agent: one that does not answer is asked
// again. But when it is silent for too long, this worker is a ghost that nobody can stop any more, and ends its generation for good.
func watch(ctx context.Context, a *agent, s *Session, l *lifeline, leaving func(Notice)) {
	var before wire.Change
	wait, heard := firstRetry, time.Now()
	for ctx.Err() == nil {
		c, ok, err := a.change(ctx, min(pollWithin, a.orphan), s.Generation)
		if err == nil || answered(err) {
			heard = time.Now()
		} else if silent := time.Since(heard); silent >= a.orphan && ctx.Err() == nil {
			l.end(fmt.Errorf("%w: no answer for %v: %w", errOrphaned, silent.Round(time.Millisecond), err))
			return
		}
		if err != nil {
			pause(ctx, wait)
			wait = min(2*wait, lastRetry)
			continue
		}
		wait = firstRetry
		if !ok {
			continue
		}
		if c == before || c.Generation < s.Generation {
			pause(ctx, sameNews)
			continue
		}
		before = c
		switch c.Kind {
		case wire.ChangePlanned:
			s.news.announce(newsPlanned)
		case wire.ChangeUndone:
			s.news.withdraw()
		case wire.ChangeStop:
			s.news.announce(newsStop)
		case wire.ChangeLeaving:
			leaving(Notice{Reason: c.Reason, Until: c.Until})
		case wire.ChangeLost:
			l.end(lostBy(c, s.Generation))
		}
	}
}

func lostBy(c wire.Change, generation uint64) error {
	if c.Rank < 0 {
		return fmt.Errorf("the agent reports a lost peer: %s", c.Reason)
	}
	return &collective.PeerLostError{Rank: c.Rank, Generation: generation, Cause: errors.New(c.Reason)}
}
