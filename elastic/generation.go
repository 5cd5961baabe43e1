package elastic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/internal/agentclient"
	"github.com/regroup-io/regroup/elastic/internal/agentwatch"
	"github.com/regroup-io/regroup/elastic/internal/canceler"
	"github.com/regroup-io/regroup/elastic/internal/members"
	"github.com/regroup-io/regroup/elastic/internal/updates"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

type ending string

const (
	finished ending = "finished" // the training function returned nil, and all ranks agreed
	planned  ending = "planned"
	stopped  ending = "stopped"
	lost     ending = "lost"
	spared   ending = "spared" // the others train without this worker, which has given what it had
)

// outcome is the outcome of a generation, which the next join reports.
type outcome struct {
	ending  ending
	reason  error // for people; nil when finished
	accused []int
	unsaved bool      // the state is not that of the last commit: it must be restored
	broken  [][2]int  // connections that were seen to fail, as pairs of ranks
	endedAt time.Time // when this worker learnt that it must leave

	// Since the last completed step, over all generations that never completed one:
	failedAt  time.Time // when the first of them ended
	lostSteps uint64    // steps that were made after the last commit
}

// classify sorts the error that ended a generation. It returns errors that are not about the
// generation.
func classify(ctx context.Context, err error, rank int, c *canceler.Canceler) (outcome, error) {
	o := outcome{reason: err}
	var cause error
	if o.endedAt, cause = c.Ended(); o.endedAt.IsZero() {
		o.endedAt = time.Now()
	}
	o.failedAt = o.endedAt
	var peer *collective.PeerLostError
	switch {
	case err == nil:
		o.ending = finished
	case ctx.Err() != nil:
		return o, context.Cause(ctx)
	case errors.Is(cause, agentwatch.ErrOrphaned):
		return o, cause
	case errors.Is(err, ErrStopped):
		o.ending = stopped
	case errors.Is(err, ErrPlannedChange):
		o.ending = planned
	case errors.Is(err, ErrPeerLost), errors.Is(err, collective.ErrAborted), errors.Is(err, collective.ErrRefused):
		o.ending = lost
		if errors.As(err, &peer) && peer.Rank != rank {
			o.accused = []int{peer.Rank}
		}
		if peer != nil && peer.Witnessed {
			o.broken = [][2]int{{peer.Witness, peer.Rank}}
		}
	default:
		return o, err
	}
	return o, nil
}

// after adds the previous outcome to that of a generation without a completed step.
func (o outcome) after(previous outcome) outcome {
	if !previous.failedAt.IsZero() {
		o.failedAt = previous.failedAt
	}
	o.lostSteps += previous.lostSteps
	return o
}

// divergedAgain returns nil if ranks have diverged at this step for the first time. One damaged
// byte on the way looks like another operation: the members go back to their commit, as after a
// loss. A program that is at fault diverges at the same step again.
func (r *runner) divergedAgain(err error) error {
	step := r.state.step
	if before := r.divergedAt; before != nil && *before == step {
		return err
	}
	r.divergedAt = &step
	return nil
}

// generation takes part in one generation: it connects to the members, brings the state in sync and
// runs the training function. joinedAt is when this worker asked for its place.
func (r *runner) generation(ctx context.Context, a workerprotocol.Assignment, previous outcome, joinedAt time.Time) (outcome, error) {
	s := &Session{state: r.state, reporter: r.reporter, writer: r.writer, updates: updates.New(), Membership: Membership{
		Generation: a.Generation, Rank: a.Rank, World: a.World,
		LocalRank: a.LocalRank, LocalSize: a.LocalSize, CrossRank: a.CrossRank, CrossSize: a.CrossSize,
	}, Traceparent: cmp.Or(a.Trace, r.options.Traceparent)}
	building, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := canceler.New(cancel)
	if r.agent != nil {
		watching, stop := context.WithCancel(ctx)
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			agentwatch.Watch{
				Agent: r.agent, OrphanTimeout: r.options.OrphanTimeout, Generation: s.Generation, Updates: s.updates, Canceler: c,
				Leaving: func(reason string, until time.Time) { r.preempted(ctx, s, PreemptionNotice{reason, until}) },
			}.Run(watching)
		}()
		defer func() {
			stop()
			<-watched
		}()
	}
	if err := r.connect(building, a, s, c); err != nil {
		// A deadline or a refusal of the agent too: a generation that cannot be built is left for
		// the next one.
		if ctx.Err() == nil && !errors.Is(err, collective.ErrInvalid) && !errors.Is(err, ErrPeerLost) {
			err = fmt.Errorf("%w: %w", collective.ErrAborted, err)
		}
		o, fatal := classify(ctx, err, a.Rank, c)
		return o.after(previous), fatal
	}
	before := r.state.step
	received, preparedAt, err := r.syncState(ctx, building, a, s)
	if err == nil && s.spare() {
		r.state.replica.Store().EndGeneration()
		return outcome{ending: spared}.after(previous), nil
	}
	if err == nil {
		s.Stage = Training
		r.serveState(a)
		s.began = time.Now()
		s.first = &workerprotocol.FirstStep{
			Survivor: previous.ending != "", Lost: previous.lostSteps + before - min(before, r.state.step), RejoinMS: agentclient.Milliseconds(preparedAt.Sub(joinedAt)),
			SyncMS: agentclient.Milliseconds(s.began.Sub(preparedAt)), SyncBytes: received, Checkpoint: r.state.resumed(),
		}
		if !previous.failedAt.IsZero() {
			s.first.AbortMS = agentclient.Milliseconds(joinedAt.Sub(previous.failedAt))
		}
		if s.Rank == 0 {
			s.reportCommit(workerprotocol.Commit{})
		}
		err = r.train(ctx, s)
	}
	r.state.replica.Store().EndGeneration()
	o, fatal := classify(ctx, err, a.Rank, c)
	if errors.Is(err, collective.ErrDiverged) && (fatal == nil || errors.Is(fatal, collective.ErrDiverged)) {
		if fatal = r.divergedAgain(err); fatal == nil {
			o.ending = lost
		}
	}
	switch {
	case fatal != nil:
		// So that the others need not wait for the socket to close, and know whose fault it is.
		r.connections.Abort(&collective.PeerLostError{Rank: a.Rank, Generation: a.Generation, Cause: fatal})
	case o.ending == lost || o.ending == planned && !s.parting:
		o.unsaved = true
	}
	if r.state.shards != nil {
		r.state.shards.Leave()
	}
	if o.unsaved && r.state.replica.Newest() != nil {
		o.lostSteps = r.state.step - r.state.replica.Step()
	}
	if s.first != nil || s.began.IsZero() {
		o = o.after(previous)
	}
	return o, fatal
}

func (r *runner) connect(ctx context.Context, a workerprotocol.Assignment, s *Session, c *canceler.Canceler) (err error) {
	timeout := r.options.ConnectTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not connected within %v", timeout))
	defer cancel()
	r.connections, err = members.Connect(ctx, collective.Options{
		Job: r.options.Job, Generation: a.Generation, Token: a.Token, Rank: a.Rank, World: a.World,
		LocalRank: a.LocalRank, LocalSize: a.LocalSize,
		Endpoint: r.endpoint, StallAfter: r.options.StallAfter, OnFailure: c.Failed,
		Peers: func(ctx context.Context, rank int) (string, error) {
			if address := a.Peers[rank]; address != "" {
				return address, nil
			}
			return r.agent.PeerAddress(ctx, a.Generation, rank)
		},
	}, a.Spares, c.Attach)
	if err != nil {
		return err
	}
	if s.program = r.connections.Program; s.program != nil {
		s.comm = s.program.WithOrigin(collective.OriginElastic)
	}
	r.options.Log.Debug("connected", "gen", a.Generation, "rank", a.Rank, "how", r.connections.All.Describe())
	return nil
}

// syncState has the program register its state, unless it has, and brings the state in sync. It
// returns the number of bytes that this worker received, and when the state was registered.
func (r *runner) syncState(ctx, building context.Context, a workerprotocol.Assignment, s *Session) (received uint64, preparedAt time.Time, err error) {
	if r.options.Prepare != nil && !s.spare() {
		if err = r.syncPrologue(ctx, s); err == nil {
			err = r.prepare(ctx, building, s)
		}
		if err != nil {
			return 0, preparedAt, err
		}
		if !r.described {
			r.described = true
			r.describe()
		}
	}
	preparedAt = time.Now()
	r.finishPrefetch(building)
	all := r.connections.All.WithOrigin(collective.OriginElastic)
	if r.state.shards == nil {
		if received, err = r.state.sync(ctx, all, a.Generation); err == nil {
			err = r.connections.LeaveSpares(ctx)
		}
		return received, preparedAt, err
	}
	chosen, found, err := r.chooseCommit(ctx, s)
	if err != nil {
		return 0, preparedAt, err
	}
	if received, err = r.state.sync(ctx, all, a.Generation); err != nil {
		return received, preparedAt, err
	}
	parts, err := r.arrange(ctx, s, chosen, found)
	return received + parts, preparedAt, err
}

// train runs the training function and, if it is complete, makes its state the last commit and
// reports that.
func (r *runner) train(ctx context.Context, s *Session) error {
	before := r.membership
	r.membership = s.Membership
	if e := r.state.elastic; e != nil {
		e.DealTo(s.Rank, s.World)
	}
	if err := s.reset(ctx, before); err != nil {
		return err
	}
	if err := r.function(ctx, s); err != nil {
		return err
	}
	if _, err := s.commit(ctx, true, false); err != nil {
		return err
	}
	r.flush(s.Rank, true)
	if r.options.Finish != nil {
		defer r.options.Finish(ctx, s)
	}
	if r.agent == nil {
		return nil
	}
	done := workerprotocol.DoneReport{Generation: s.Generation, Step: s.state.step, Ledger: s.state.Ledger()}
	done.Metrics, done.MetricsStep = s.reportedMetrics()
	// Before the communicator is closed: members that still need it must learn that the job is
	// over, not that a peer died.
	return r.agent.Done(ctx, done)
}
