package elastic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
)

var (
	errMayJoin    = errors.New("nothing is left to be fetched before joining")
	errWarmedLong = errors.New("the state was not fetched in time")
)

// warming is a warm-up in the background.
type warming struct {
	*warmUp
	began time.Time
	stop  context.CancelCauseFunc // of the generation that is followed now
	done  chan struct{}
	err   error // why this worker must not join; read after done
}

func (w *warming) end() {
	w.stop(nil)
	<-w.done
}

// settle ends the warm-up and gives the state what it has brought. The last commit that is arriving is waited for, unless
// broken ends before: the sync would have to send the rest of it anyway.
func (r *runner) settle(broken context.Context) {
	w := r.warming
	if w == nil {
		return
	}
	if w.arriving.Load() {
		select {
		case <-w.done:
		case <-broken.Done():
		}
	}
	w.end()
	w.settle(r.state)
	r.warming = nil
}

// enter asks for the first place. If the job runs already, the state is fetched before this worker asks to be let in, so
// that the others need not wait for it; where nothing answers it comes in as it is. known is where the state can be fetched, if the agent
// has said so before.
func (r *runner) enter(ctx context.Context, known *wire.Assignment) (wire.Assignment, error) {
	if r.state.held == nil {
		if err := r.state.begin(); err != nil {
			return wire.Assignment{}, err
		}
	}
	// The first sync needs the name of this start and memory to receive into, and nobody should have to wait then.
	start, spare, prepared := r.state.held, r.state.blank(), make(chan struct{})
	go func() {
		defer close(prepared)
		spare.touch()
		start.digest()
	}()
	defer func() { <-prepared }()
	may, mayJoin := context.WithCancel(ctx)
	defer mayJoin()
	request := wire.JoinRequest{Address: r.endpoint.Addr(), Cold: r.options.WarmWithin > 0}
	if known != nil {
		request.Holders = known.Generation
		<-prepared
		r.follow(ctx, *known, mayJoin)
	}
	for {
		a, err := r.joinUnless(ctx, may, request)
		switch {
		case ctx.Err() != nil:
			return a, context.Cause(ctx)
		case errors.Is(err, errMayJoin):
			if err := r.warmth(); err != nil {
				return a, err
			}
			request.Cold = false
		case err == nil && a.Verdict == wire.WarmUp:
			request.Holders = a.Generation
			<-prepared
			r.follow(ctx, a, mayJoin)
		default:
			return a, err
		}
	}
}

// joinUnless asks for the first place. One that is asked for from aside is given up with errMayJoin when ready ends.
func (r *runner) joinUnless(ctx, ready context.Context, request wire.JoinRequest) (wire.Assignment, error) {
	joining, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	if request.Cold {
		defer context.AfterFunc(ready, func() { cut(errMayJoin) })()
	}
	return r.agent.join(joining, request, time.Time{})
}

// warmth tells why this worker must not join; nil = it may.
func (r *runner) warmth() error {
	select {
	case <-r.warming.done:
		if err := r.warming.err; err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
	default:
	}
	r.options.Log.Info("warmed up", "job", r.options.Job, "took", time.Since(r.warming.began))
	return nil
}

// follow begins the warm-up, or takes it on to the generation that the members are in now. mayJoin is called when it has
// brought what can be had before the members leave, or has failed, or has taken too long.
func (r *runner) follow(ctx context.Context, a wire.Assignment, mayJoin func()) {
	w := &warming{began: time.Now(), done: make(chan struct{})}
	if before := r.warming; before != nil {
		before.end()
		w.warmUp, w.began = before.warmUp, before.began
	} else {
		w.warmUp = newWarmUp(r.options.Job, r.endpoint, r.state)
	}
	r.warming = w
	r.options.Log.Info("warms up", "job", r.options.Job, "gen", a.Generation, "holders", a.Peers)
	ctx, w.stop = context.WithCancelCause(ctx)
	late := time.AfterFunc(time.Until(w.began.Add(r.options.WarmWithin)), func() { w.stop(errWarmedLong) })
	go func() {
		w.err = w.run(ctx, a, func() {
			late.Stop() // it follows for as long as it is not let in
			mayJoin()
		})
		late.Stop()
		may := w.err != nil || errors.Is(context.Cause(ctx), errWarmedLong)
		close(w.done)
		if may {
			mayJoin()
		}
	}()
}
