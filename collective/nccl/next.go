package nccl

import (
	"context"
	"errors"
	"fmt"

	"github.com/regroup-io/regroup/collective"
)

// Next makes the engine of the next generation out of this one, on the same GPU, with the
// same stream and pinned memory: what NewEngine is for newcomers, and it tells the same
// errors. LocalRank and LocalSize are those of the new generation. NCCL goes on
//
//	as it is       if the node has the same ranks, which had come equally far, and nothing
//	               was under way
//	without those that are gone
//	               if there are no newcomers, and no error of its own is in the way
//	anew           otherwise
//
// about which the ranks of each node agree through the new communicator. This engine is
// over then, and is not to be closed; after an error it is still there, for the Next of
// another generation or Close. With ErrStuck no generation can use this process any more.
func (e *Engine) Next(ctx context.Context, c *collective.Communicator, localRank, localSize int) (*Engine, error) {
	o := e.opt
	o.LocalRank, o.LocalSize = localRank, localSize
	if err := o.validate(); err != nil {
		return nil, err
	}
	e.leave(ctx)
	if e.gone {
		return nil, fmt.Errorf("engine: %w", ErrClosed)
	}
	if e.left != nil {
		c.Abort(e.left)
		return nil, e.left
	}
	for i, stage := range e.seat.stages {
		if stage != nil && stage.broken != nil {
			e.seat.stages[i] = nil
			if err := stage.Close(ctx); err != nil {
				c.Abort(err)
				return nil, err
			}
		}
	}
	next := newEngine(c, o, e.seat)
	next.origin = e.origin
	if err := next.form(ctx, e.remains, e.reached); err != nil {
		if e.remains != nil && e.remains.native.Load() == 0 {
			e.remains = nil
		}
		return nil, err
	}
	e.gone = true
	return next, nil
}

// scope ends with ctx and with the communicator.
func (e *Engine) scope(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	over := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-e.comm.Done():
			cancel(e.comm.Failed())
		case <-over:
		}
	}()
	return ctx, func() {
		close(over)
		<-ended
		cancel(nil)
	}
}

// give fails the generation with an error of this rank, unless it has failed already, and
// returns why it did.
func (e *Engine) give(err error) error {
	e.blame(err)
	failure := e.comm.Failed()
	var aborted *collective.AbortedError
	if failure == nil || errors.As(failure, &aborted) && aborted.Rank == e.comm.Rank() {
		return err // as seen here
	}
	if stuck(err) {
		return errors.Join(failure, err)
	}
	return failure
}

// unmake ends, after a failure, what was made and what can serve no second attempt. The
// error is why it could not.
func (e *Engine) unmake(old *Comm, failure error) error {
	ctx, cancel := context.WithTimeout(context.Background(), e.opt.StuckAfter)
	defer cancel()
	var err error
	if e.local != nil && e.local != old {
		err = e.local.Abort(ctx, failure)
	}
	if old != nil && e.tried {
		err = errors.Join(err, old.Abort(ctx, failure))
	}
	e.local = nil
	return err
}
