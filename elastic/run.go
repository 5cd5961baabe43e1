package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/inproc"
	"github.com/regroup-io/regroup/collective/tcp"
	"github.com/regroup-io/regroup/elastic/checkpoint"
)

type runner struct {
	options  Options
	state    *State
	function func(context.Context, *Session) error
	agent    *agent // nil = stand-alone
	reporter *reporter
	writer   *checkpointWriter // nil = no checkpoints
	endpoint *collective.Endpoint
	retiring *collective.Communicator // of the last generation, until it is closed
	prefetch *backgroundPrefetch      // of a newcomer, until its first sync
	place    Place                    // in the last generation that was in sync

	preparation    preparation
	described      bool   // the checkpoint writer knows the layout of what was prepared
	endPreparation func() // ends the preparation outside of a generation; nil = there is none

	noticed   Notice         // the last one
	callbacks sync.WaitGroup // of the program, that run beside training
}

// retire closes the communicator of the last generation. With a stuck neighbour that takes a moment.
func (r *runner) retire() {
	if r.retiring != nil {
		_ = r.retiring.Close() // always nil
		r.retiring = nil
	}
}

// Run trains: it joins a generation, brings the state in sync and calls train, again and again, until train returns
// nil on all ranks, the job is over or stopped, or there is an error that regrouping can not mend. It returns nil in the first case
// only; an error that is ErrUnfinished says that this worker left in order.
//
// train must begin where the state says, call the same collectives on all ranks, and return their errors (wrapped with
// %w if at all): ErrPeerLost and ErrPlannedChange lead to the next generation. Its goroutines must have ended when it
// returns. State that must survive is registered; anything else is gone when train is called again.
func Run(ctx context.Context, o Options, state *State, train func(context.Context, *Session) error) (err error) {
	if err := o.complete(); err != nil {
		return err
	}
	if state.err != nil {
		return fmt.Errorf("elastic: %w", state.err)
	}
	r := &runner{options: o, state: state, function: train}
	r.preparation.done = o.Prepare == nil
	ctx, over := context.WithCancel(ctx)
	defer r.callbacks.Wait()
	defer func() {
		over()
		if r.endPreparation != nil {
			r.endPreparation()
		}
	}()
	transport, err := listen(o)
	if err != nil {
		return fmt.Errorf("elastic: %w", err)
	}
	r.endpoint = collective.NewEndpoint(transport)
	if o.Checkpoint.Dir != "" {
		if err := r.checkpoints(ctx); err != nil {
			return errors.Join(fmt.Errorf("elastic: %w", err), r.endpoint.Close())
		}
	}
	defer func() {
		r.writer.close()
		r.retire()
		if r.prefetch != nil {
			r.prefetch.end()
		}
		r.endpoint.Host(nil)
		err = errors.Join(err, r.endpoint.Close())
	}()
	if o.Socket == "" {
		return r.alone(ctx)
	}
	r.agent = newAgent(o)
	defer r.agent.close()
	// Reports that are under way when ctx ends still go out, within the bounds of close.
	r.reporter = newReporter(context.WithoutCancel(ctx), r.agent)
	defer r.reporter.close()
	return r.loop(ctx)
}

// checkpoints has the state begin with the newest checkpoint, if nobody holds a commit, and commits written to disk.
func (r *runner) checkpoints(ctx context.Context) error {
	dir, err := checkpoint.Open(r.options.Checkpoint.Dir, r.options.Checkpoint.Keep)
	if err != nil {
		return err
	}
	r.writer = newCheckpointWriter(ctx, dir, r.options.Checkpoint, r.state, r.options.Log)
	return r.state.useCheckpoints(dir, r.options.Log)
}

// listen opens the one address that this worker keeps for all its generations.
func listen(o Options) (collective.Transport, error) {
	switch {
	case o.Transport != nil:
		return o.Transport, nil
	case o.Socket == "":
		return inproc.NewNetwork().Listen("alone")
	}
	return tcp.Listen(tcp.Options{Host: o.Host, PortMin: o.PortMin, PortMax: o.PortMax})
}

// alone trains outside of Regroup: one generation with one member.
func (r *runner) alone(ctx context.Context) error {
	left, err := r.generation(ctx, wire.Assignment{Generation: 1, World: 1, LocalSize: 1, CrossSize: 1}, departure{}, time.Now())
	if err == nil && left.how == stopped {
		return ErrStopped
	}
	return err
}

func (r *runner) loop(ctx context.Context) error {
	var left departure
	var generation uint64
	for {
		asked := time.Now()
		var a wire.Assignment
		var err error
		if generation == 0 {
			if r.preparation.finished() {
				a, err = r.joinFirst(ctx, nil)
			} else {
				a, err = r.joinUnprepared(ctx)
			}
		} else {
			a, err = r.rejoin(ctx, generation, left)
		}
		if err != nil {
			return fmt.Errorf("join: %w", err)
		}
		switch a.Verdict {
		case wire.Over, wire.Removed:
			r.options.Log.Info("no further generation for this worker", "job", r.options.Job, "verdict", a.Verdict)
			if a.Verdict == wire.Removed {
				return ErrRemoved
			}
			return ErrOver
		case wire.Assigned:
		default:
			return fmt.Errorf("join: the agent answers %q, which this version does not understand", a.Verdict)
		}
		r.options.Log.Info("generation begins", "job", r.options.Job, "gen", a.Generation, "rank", a.Rank, "world", a.World, "cause", a.Cause)
		left, err = r.generation(ctx, a, left, asked)
		if err != nil {
			return fmt.Errorf("generation %d, rank %d of %d: %w", a.Generation, a.Rank, a.World, err)
		}
		r.options.Log.Info("generation ends", "job", r.options.Job, "gen", a.Generation, "kind", left.how, "reason", left.why, "accused", left.accused)
		if left.how == stopped && a.Rank == 0 {
			r.writer.flush()
		}
		switch left.how {
		case finished:
			return nil
		case stopped:
			return ErrStopped
		}
		generation = a.Generation
	}
}

// rejoin asks for a place. Meanwhile the last communicator is closed, and the state goes back to its commit and gets its
// name: the next sync needs that, and nobody has to wait for it.
func (r *runner) rejoin(ctx context.Context, generation uint64, left departure) (wire.Assignment, error) {
	request := wire.JoinRequest{
		Address: r.endpoint.Addr(), Left: generation, Planned: left.how == planned,
		Accused: left.accused, Broken: left.broken, Commit: r.state.Committed(),
	}
	restored := make(chan error, 1)
	go func() {
		r.retire()
		var err error
		if left.how == lost {
			err = r.state.Restore()
		}
		r.state.replica.HashCommit()
		restored <- err
	}()
	a, err := r.agent.join(ctx, request, left.noticed)
	return a, errors.Join(err, <-restored)
}
