package nccl

import (
	"context"
	"errors"

	"github.com/regroup-io/regroup/collective"
)

// Close waits for what was started and frees what the engine holds, but the device and the
// communicator. All ranks of the node must call it, before they close the communicator; if
// that is over, NCCL is aborted. An error of ErrStuck says that the process must restart.
// After a Next that has succeeded it does nothing.
func (e *Engine) Close(ctx context.Context) error {
	e.leave(ctx)
	if e.gone {
		return nil
	}
	e.gone = true
	if e.left != nil {
		return e.left
	}
	var err error
	switch local := e.remains; {
	case local == nil:
	case local.Err() == nil && !over(e.comm):
		err = local.Close(ctx)
	default:
		err = local.Abort(ctx, ErrClosed)
	}
	if stuck(err) {
		return err
	}
	return errors.Join(err, e.seat.close(ctx))
}

// Quiet is for a generation that has failed: it waits until NCCL has been ended and nothing
// that was started touches its buffers any more. After it Err also says if that did not work.
func (e *Engine) Quiet() {
	e.queue.mu.Lock()
	e.queue.closed = true
	e.queue.mu.Unlock()
	e.queue.runs.Wait()
	<-e.watched
}

func over(c *collective.Communicator) bool {
	select {
	case <-c.Done():
		return true
	default:
		return c.Failed() != nil
	}
}

// leave ends the engine, once, when nothing is under way any more.
func (e *Engine) leave(ctx context.Context) {
	e.leaving.Do(func() { e.remains, e.left = e.finish(ctx) })
}

// finish returns NCCL's communicator, if it is still of use or must be ended.
func (e *Engine) finish(ctx context.Context) (*Comm, error) {
	q := &e.queue
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	// An operation cannot be taken back, so who has no time left gives the generation up.
	stop := context.AfterFunc(ctx, func() { e.comm.Abort(context.Cause(ctx)) })
	q.runs.Wait()
	for _, w := range e.flight {
		if e.Err() == nil {
			if err := w.Wait(e.life); err != nil {
				_ = e.suffer(err) // who waits for the task is told
			}
		}
	}
	stop()
	close(e.over)
	<-e.watched
	e.end(ErrClosed)
	if err := e.stuckWith(); err != nil {
		return nil, err
	}
	// What is over has passed its events; what was aborted never will be asked.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.opt.StuckAfter)
	defer cancel()
	d := e.seat.dev
	err := d.do(ctx, "free events", func() error {
		for _, w := range e.flight {
			w.drop()
		}
		for _, event := range e.strays {
			if event != 0 {
				d.free(event)
			}
		}
		e.flight, e.strays = nil, nil
		return nil
	})
	if err != nil || e.local == nil || e.local.native.Load() == 0 {
		return nil, err
	}
	return e.local, nil
}
