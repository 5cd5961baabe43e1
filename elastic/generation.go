package elastic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/collective"
)

// ending is how a generation ended for this worker.
type ending string

const (
	finished ending = "finished" // the training function returned nil, and all ranks agreed
	planned  ending = "planned"
	stopped  ending = "stopped"
	lost     ending = "lost"
)

// departure is what the next join tells of the generation that was left.
type departure struct {
	how     ending
	why     error // for people; nil when finished
	accused []int
	broken  [][2]int  // who could not reach whom, if somebody saw it
	noticed time.Time // what made this worker leave
	trouble time.Time // the first notice since the last good step: generations that never made one are part of it
	void    uint64    // steps that were made after the last commit and are lost, in the same span
}

// depart sorts the error that ended a generation. Errors that are not about the generation are returned.
func depart(ctx context.Context, err error, rank int, l *lifeline) (departure, error) {
	d := departure{why: err, noticed: l.noticedAt()}
	if d.noticed.IsZero() {
		d.noticed = time.Now()
	}
	d.trouble = d.noticed
	var peer *collective.PeerLostError
	switch {
	case err == nil:
		d.how = finished
	case ctx.Err() != nil:
		return d, context.Cause(ctx)
	case l.orphaned() != nil:
		return d, l.orphaned()
	case errors.Is(err, ErrStopped):
		d.how = stopped
	case errors.Is(err, ErrPlannedChange):
		d.how = planned
	case errors.Is(err, ErrPeerLost), errors.Is(err, collective.ErrAborted), errors.Is(err, collective.ErrRefused):
		d.how = lost
		if errors.As(err, &peer) && peer.Rank != rank {
			d.accused = []int{peer.Rank}
		}
		if peer != nil && peer.Witnessed {
			d.broken = [][2]int{{peer.Witness, peer.Rank}}
		}
	default:
		return d, err
	}
	return d, nil
}

// generation lives through one: connects to its members, brings the state in sync, runs the training function.
func (r *runner) generation(ctx context.Context, a wire.Assignment, since departure, asked time.Time) (departure, error) {
	s := &Session{state: r.state, reporter: r.reporter, writer: r.writer, Place: Place{
		Generation: a.Generation, Rank: a.Rank, World: a.World,
		LocalRank: a.LocalRank, LocalSize: a.LocalSize, CrossRank: a.CrossRank, CrossSize: a.CrossSize,
	}}
	building, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	l := &lifeline{cut: cut}
	if r.agent != nil {
		watching, enough := context.WithCancel(ctx)
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			watch(watching, r.agent, s, l, func(n Notice) { r.notice(ctx, s, n) })
		}()
		defer func() {
			enough()
			<-watched
		}()
	}
	err := r.build(building, a, s, l)
	if err != nil {
		// Also a deadline or the agent's "no": a generation that can not be built is left for the next one.
		if ctx.Err() == nil && !errors.Is(err, collective.ErrInvalid) && !errors.Is(err, ErrPeerLost) {
			err = fmt.Errorf("%w: %w", collective.ErrAborted, err)
		}
		d, fatal := depart(ctx, err, a.Rank, l)
		return d.after(since), fatal
	}
	r.retiring = s.comm
	if r.options.Prepare != nil {
		if err = r.meet(ctx, s); err == nil {
			err = r.prepare(ctx, building, s)
		}
		if err == nil && !r.described {
			r.described = true
			r.writer.describe(r.state)
		}
	}
	built := time.Now()
	var received uint64
	if err == nil {
		r.finishPrefetch(building)
		received, err = r.state.sync(ctx, s.comm, a.Generation)
	}
	if err == nil {
		s.Stage = Training
		r.serveState(a)
		s.began = time.Now()
		s.first = &wire.FirstStep{
			Survivor: since.how != "", Lost: since.void, RejoinMS: milliseconds(built.Sub(asked)),
			SyncMS: milliseconds(s.began.Sub(built)), SyncBytes: received, Checkpoint: r.state.resumed(),
		}
		if !since.trouble.IsZero() {
			s.first.AbortMS = milliseconds(asked.Sub(since.trouble))
		}
		err = r.train(ctx, s)
	}
	r.state.replica.Store().EndGeneration()
	d, fatal := depart(ctx, err, a.Rank, l)
	switch {
	case fatal != nil: // the others need not wait for our socket to close, and know whose fault it is
		s.comm.Abort(&collective.PeerLostError{Rank: a.Rank, Generation: a.Generation, Cause: fatal})
	case d.how == lost && r.state.replica.Newest() != nil:
		d.void = r.state.step - r.state.replica.Newest().Step()
	}
	if s.first != nil || s.began.IsZero() {
		d = d.after(since)
	}
	return d, fatal
}

// after adds what went before to a departure from a generation without a good step.
func (d departure) after(before departure) departure {
	if !before.trouble.IsZero() {
		d.trouble = before.trouble
	}
	d.void += before.void
	return d
}

// build connects to the members, within bounds.
func (r *runner) build(ctx context.Context, a wire.Assignment, s *Session, l *lifeline) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.options.BuildWithin, fmt.Errorf("not connected within %v", r.options.BuildWithin))
	defer cancel()
	s.comm, err = collective.New(ctx, collective.Options{
		Job: r.options.Job, Generation: a.Generation, Token: a.Token, Rank: a.Rank, World: a.World,
		LocalRank: a.LocalRank, LocalSize: a.LocalSize,
		Endpoint: r.endpoint, StallAfter: r.options.StallAfter, OnFailure: l.notice,
		Peers: func(ctx context.Context, rank int) (string, error) {
			if address := a.Peers[rank]; address != "" {
				return address, nil
			}
			return r.agent.peer(ctx, a.Generation, rank)
		},
	})
	if err == nil {
		l.attach(s.comm)
		r.options.Log.Debug("connected", "gen", a.Generation, "rank", a.Rank, "how", s.comm.Describe())
	}
	return err
}

// train runs the function and, if it is through, makes its state the last commit and says so.
func (r *runner) train(ctx context.Context, s *Session) error {
	before := r.place
	r.place = s.Place
	if e := r.state.elastic; e != nil {
		e.place(s.Rank, s.World)
	}
	if err := s.reset(ctx, before); err != nil {
		return err
	}
	if err := r.function(ctx, s); err != nil {
		return err
	}
	if _, err := s.commit(ctx, true); err != nil {
		return err
	}
	if s.Rank == 0 {
		r.writer.flush()
	}
	if r.options.Finish != nil {
		defer r.options.Finish(ctx, s)
	}
	if r.agent == nil {
		return nil
	}
	done := wire.DoneReport{Generation: s.Generation, Step: s.state.step, Ledger: s.state.Ledger()}
	if s.Rank == 0 {
		done.Metrics, done.MetricsStep = s.metrics, new(s.measured)
	}
	// Before the communicator is closed: whoever needs us longer than that learns that the job is over, not that we died.
	return r.agent.insist(ctx, func() (bool, error) {
		err := r.agent.post(ctx, wire.PathDone, done)
		return err == nil, err
	})
}
