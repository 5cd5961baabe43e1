package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/inproc"
	"github.com/regroup-io/regroup/collective/tcp"
	"github.com/regroup-io/regroup/elastic/internal/agentclient"
	"github.com/regroup-io/regroup/elastic/internal/checkpointwriter"
	"github.com/regroup-io/regroup/elastic/internal/members"
	"github.com/regroup-io/regroup/elastic/shards"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

type runner struct {
	options  Options
	state    *State
	function func(context.Context, *Session) error
	agent    *agentclient.Client // nil = stand-alone
	reporter *agentclient.Reporter
	writer   *checkpointwriter.Writer // nil = no checkpoints
	disk     *shards.Disk             // where checkpoints of parts are; nil = nowhere
	endpoint *collective.Endpoint

	connections *members.Connections // of the last generation
	membership  Membership           // in the last generation that was in sync
	prefetch    *backgroundPrefetch  // of a newcomer, until its first sync
	divergedAt  *uint64              // the step at which ranks last disagreed on an operation; nil = they never did

	preparation    preparation
	described      bool   // the checkpoint writer knows the layout of what was prepared
	endPreparation func() // ends the preparation of a candidate; nil = there is none

	preemption PreemptionNotice // the last one
	callbacks  sync.WaitGroup   // of the program, that run while it trains
}

// Run trains: it joins a generation, brings the state in sync and calls train, again and again,
// until train returns nil on all ranks, the job is over or stopped, or there is an error that
// regrouping does not help against. It returns nil in the first case only; an error that is
// ErrUnfinished says that this worker has left as planned.
//
// train must begin where the state says, call the same collectives on all ranks, and return their
// errors, wrapped with %w if at all: ErrPeerLost and ErrPlannedChange lead to the next generation.
// Its goroutines must have ended when it returns. What must survive is registered in the state;
// anything else is lost when train is called again.
func Run(ctx context.Context, o Options, state *State, train func(context.Context, *Session) error) (err error) {
	if err := o.complete(); err != nil {
		return err
	}
	if state.err != nil {
		return fmt.Errorf("elastic: %w", state.err)
	}
	r := &runner{options: o, state: state, function: train, connections: &members.Connections{}}
	r.preparation.done = o.Prepare == nil
	ctx, cancel := context.WithCancel(ctx)
	defer r.callbacks.Wait()
	defer func() {
		cancel()
		if r.endPreparation != nil {
			r.endPreparation()
		}
	}()
	transport, err := listen(o)
	if err != nil {
		return fmt.Errorf("elastic: %w", err)
	}
	r.endpoint = endpointOf(transport, o)
	if o.Checkpoint.Dir != "" {
		switch err := r.openCheckpoints(ctx); {
		case err != nil && o.Checkpoint.OfJob:
			o.Log.Warn("no checkpoints are written", "err", err)
		case err != nil:
			return errors.Join(fmt.Errorf("elastic: %w", err), r.endpoint.Close())
		}
	}
	defer func() {
		r.writer.Wait()
		r.connections.Close()
		if r.prefetch != nil {
			r.prefetch.end()
		}
		r.endpoint.SetService(nil)
		err = errors.Join(err, r.endpoint.Close())
	}()
	if o.Socket == "" {
		return r.runAlone(ctx)
	}
	r.agent = agentclient.New(o.Socket, o.Token, o.AgentTimeout)
	defer r.agent.Close()
	// Reports that are not sent yet when ctx ends are still sent, within the limits of Close.
	r.reporter = agentclient.NewReporter(context.WithoutCancel(ctx), r.agent)
	defer r.reporter.Close()
	return r.run(ctx)
}

// listen opens the one address that this worker has in all its generations.
func listen(o Options) (collective.Transport, error) {
	switch {
	case o.Transport != nil:
		return o.Transport, nil
	case o.Socket == "":
		return inproc.NewNetwork().Listen("alone")
	}
	return tcp.Listen(tcp.Options{Host: o.Host, PortMin: o.PortMin, PortMax: o.PortMax})
}

// endpointOf returns the endpoint on a transport. Alone there is no token to derive keys from, and
// nobody to send anything to.
func endpointOf(t collective.Transport, o Options) *collective.Endpoint {
	if o.Encrypt && o.Socket != "" {
		return collective.NewEncryptedEndpoint(t)
	}
	return collective.NewEndpoint(t)
}

// runAlone trains without an agent: one generation with one member.
func (r *runner) runAlone(ctx context.Context) error {
	o, err := r.generation(ctx, workerprotocol.Assignment{Generation: 1, World: 1, LocalSize: 1, CrossSize: 1}, outcome{}, time.Now())
	if err == nil && o.ending == stopped {
		return ErrStopped
	}
	return err
}

func (r *runner) run(ctx context.Context) error {
	var previous outcome
	var generation uint64
	for {
		began := time.Now()
		a, err := r.join(ctx, generation, previous)
		if err != nil {
			return fmt.Errorf("join: %w", err)
		}
		switch a.Verdict {
		case workerprotocol.Over, workerprotocol.Removed:
			r.options.Log.Info("no further generation for this worker", "job", r.options.Job, "verdict", a.Verdict)
			if a.Verdict == workerprotocol.Removed {
				return ErrRemoved
			}
			return ErrOver
		case workerprotocol.Assigned:
		default:
			return fmt.Errorf("join: the agent answers %q, which this version does not understand", a.Verdict)
		}
		r.options.Log.Info("generation begins", "job", r.options.Job, "gen", a.Generation, "rank", a.Rank, "world", a.World, "cause", a.Cause)
		previous, err = r.generation(ctx, a, previous, began)
		if err != nil {
			return fmt.Errorf("generation %d, rank %d of %d: %w", a.Generation, a.Rank, a.World, err)
		}
		r.options.Log.Info("generation ends", "job", r.options.Job, "gen", a.Generation, "kind", previous.ending, "reason", previous.reason, "accused", previous.accused)
		if previous.ending == stopped {
			r.flush(a.Rank, false)
		}
		switch previous.ending {
		case finished:
			return nil
		case stopped:
			return ErrStopped
		}
		generation = a.Generation
	}
}

// join asks for a place in the generation after the last one of this worker; 0 = there was none.
func (r *runner) join(ctx context.Context, last uint64, previous outcome) (workerprotocol.Assignment, error) {
	switch {
	case last > 0:
		return r.rejoin(ctx, last, previous)
	case r.preparation.finished():
		return r.joinFirst(ctx, nil)
	}
	return r.joinUnprepared(ctx)
}

// rejoin asks for a place in the next generation. Meanwhile the last communicator is closed, and
// the state returns to its commit, whose hash the next sync will need.
func (r *runner) rejoin(ctx context.Context, last uint64, previous outcome) (workerprotocol.Assignment, error) {
	request := workerprotocol.JoinRequest{
		Address: r.endpoint.Addr(), Left: last, Planned: previous.ending == planned,
		Accused: previous.accused, Broken: previous.broken, Commit: r.state.Committed(),
	}
	restored := make(chan error, 1)
	go func() {
		r.connections.Close()
		var err error
		if previous.unsaved {
			err = r.state.restore()
		}
		r.state.replica.HashCommit()
		restored <- err
	}()
	a, err := r.agent.Join(ctx, request, previous.endedAt)
	return a, errors.Join(err, <-restored)
}
