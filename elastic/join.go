package elastic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/statesync"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// errMayJoin ends a first join that was asked for without wanting a place yet: the worker may
// become a member now.
var errMayJoin = errors.New("nothing is left to be fetched before joining")

// backgroundPrefetch is a prefetch that follows one generation.
type backgroundPrefetch struct {
	*statesync.Prefetch
	began time.Time
	stop  context.CancelCauseFunc
	done  chan struct{}
	err   error // why this worker must not join; valid after done is closed
}

func (p *backgroundPrefetch) end() {
	p.stop(nil)
	<-p.done
}

// finishPrefetch ends the prefetch and hands its result to the state. If the last commit of the
// generation is arriving it waits for it, because the sync would have to send the rest anyway, but
// not for longer than until building ends.
func (r *runner) finishPrefetch(building context.Context) {
	p := r.prefetch
	if p == nil {
		return
	}
	if p.Finishing() {
		select {
		case <-p.done:
		case <-building.Done():
		}
	}
	p.end()
	p.Deliver()
	r.prefetch = nil
}

// joinFirst asks for the first place. If the job is running already, the state is fetched before
// this worker becomes a member, so that the others need not wait for it; if no holder answers, it
// joins without. known is the generation from which the state can be fetched, if the agent has
// named one before.
func (r *runner) joinFirst(ctx context.Context, known *workerprotocol.Assignment) (workerprotocol.Assignment, error) {
	if err := r.state.begin(); err != nil {
		return workerprotocol.Assignment{}, err
	}
	prepared := r.state.replica.PrepareSync()
	defer func() { <-prepared }()
	ready, mayJoin := context.WithCancel(ctx)
	defer mayJoin()
	request := workerprotocol.JoinRequest{Address: r.endpoint.Addr(), Unsynced: r.options.PrefetchTimeout > 0}
	if known != nil {
		request.Holders = known.Generation
		<-prepared
		r.startPrefetch(ctx, *known, mayJoin)
	}
	for {
		a, err := r.joinUnless(ctx, ready, request)
		switch {
		case ctx.Err() != nil:
			return a, context.Cause(ctx)
		case errors.Is(err, errMayJoin):
			if err := r.prefetchError(); err != nil {
				return a, err
			}
			request.Unsynced = false
		case err == nil && a.Verdict == workerprotocol.Prefetch:
			request.Holders = a.Generation
			<-prepared
			r.startPrefetch(ctx, a, mayJoin)
		default:
			return a, err
		}
	}
}

// joinUnless asks for the first place. While the state is still to be fetched, it returns
// errMayJoin when ready ends.
func (r *runner) joinUnless(ctx, ready context.Context, request workerprotocol.JoinRequest) (workerprotocol.Assignment, error) {
	joining, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if request.Unsynced {
		defer context.AfterFunc(ready, func() { cancel(errMayJoin) })()
	}
	return r.agent.Join(joining, request, time.Time{})
}

// prefetchError tells why this worker must not join; nil = it may.
func (r *runner) prefetchError() error {
	select {
	case <-r.prefetch.done:
		if err := r.prefetch.err; err != nil {
			return fmt.Errorf("prefetch: %w", err)
		}
	default:
	}
	r.options.Log.Info("state prefetched", "job", r.options.Job, "took", time.Since(r.prefetch.began))
	return nil
}

// startPrefetch begins the prefetch, or continues it from the current generation of the members. It
// calls mayJoin when everything was fetched that is there before the members leave, when it has
// failed, or when it has taken too long.
func (r *runner) startPrefetch(ctx context.Context, a workerprotocol.Assignment, mayJoin func()) {
	p := &backgroundPrefetch{began: time.Now(), done: make(chan struct{})}
	if before := r.prefetch; before != nil {
		before.end()
		p.Prefetch, p.began = before.Prefetch, before.began
	} else {
		p.Prefetch = statesync.NewPrefetch(r.endpoint, r.state.replica)
	}
	r.prefetch = p
	r.options.Log.Info("prefetching the state", "job", r.options.Job, "gen", a.Generation, "holders", a.Peers)
	ctx, p.stop = context.WithCancelCause(ctx)
	timer := time.AfterFunc(time.Until(p.began.Add(r.options.PrefetchTimeout)), func() { p.stop(statesync.ErrTimeout) })
	go func() {
		p.err = p.Run(ctx, r.source(a), func() {
			timer.Stop() // from now on it follows the members until this worker becomes one
			mayJoin()
		})
		timer.Stop()
		join := p.err != nil || errors.Is(context.Cause(ctx), statesync.ErrTimeout)
		close(p.done)
		if join {
			mayJoin()
		}
	}()
}

// source is where the members of a generation serve their state.
func (r *runner) source(a workerprotocol.Assignment) statesync.Source {
	s := statesync.Source{Job: r.options.Job, Generation: a.Generation, Token: a.Token}
	for _, address := range a.Peers {
		s.Holders = append(s.Holders, address)
	}
	slices.Sort(s.Holders)
	return s
}

// serveState makes the endpoint serve the state of this worker's generation to newcomers.
func (r *runner) serveState(a workerprotocol.Assignment) {
	if r.agent == nil {
		return
	}
	server := statesync.NewServer(r.state.replica,
		func() []byte { return r.options.Prologue.Encode(0) },
		func(ctx context.Context, address string) error {
			return r.endpoint.Ping(ctx, address, r.options.Job, a.Generation)
		})
	r.endpoint.SetService(&collective.Service{
		Job: r.options.Job, Generation: a.Generation, Token: workerprotocol.StateToken(a.Token), Serve: server.Serve,
	})
}

// joinUnprepared asks for the first place of a worker whose state is not registered yet. If others
// are training already the state is registered meanwhile, so that nobody has to wait for that;
// otherwise together with the others.
func (r *runner) joinUnprepared(ctx context.Context) (workerprotocol.Assignment, error) {
	ready, mayJoin := context.WithCancel(ctx)
	defer mayJoin()
	preparing, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	r.endPreparation = func() {
		cancel()
		wg.Wait()
	}
	request := workerprotocol.JoinRequest{Address: r.endpoint.Addr(), Unsynced: r.options.PrefetchTimeout > 0}
	var running *workerprotocol.Assignment // the generation of the others
	for {
		a, err := r.joinUnless(ctx, ready, request)
		switch {
		case ctx.Err() != nil:
			return a, context.Cause(ctx)
		case errors.Is(err, errMayJoin):
			prepared := r.preparation.claim()
			if prepared == nil {
				// No holder has answered: the state is registered in the next generation.
				request.Unsynced = false
				continue
			}
			<-prepared
			if err := r.preparation.end(r.preparation.err, r.state); err != nil {
				return a, err
			}
			return r.joinFirst(ctx, running)
		case err == nil && a.Verdict == workerprotocol.Prefetch:
			request.Holders = a.Generation
			first := running == nil
			running = &a
			if first {
				wg.Go(func() { r.prepareCandidate(preparing, a, mayJoin) })
			}
		default:
			return a, err
		}
	}
}
