package gpu

import (
	"context"
	"fmt"

	"github.com/regroup-io/regroup/collective/nccl"
)

// Task is an operation of an Engine that was started. Tasks run one after the other, in the order
// in which they were started.
type Task struct {
	engine *Engine
	name   string
	ready  *nccl.Event // after what the caller had queued; nil = nothing

	launched chan struct{} // closed when all of it is queued on the GPU or done, or it failed
	work     *nccl.Work    // the last of it on the GPU; nil = it is done
	err      error
}

// failed is the task of a call with an error.
func failed(err error) *Task {
	t := &Task{launched: make(chan struct{})}
	t.end(err)
	return t
}

// start queues an operation after the work queued on a stream now; nil is for buffers that are
// ready.
func (e *Engine) start(ctx context.Context, name string, on *nccl.Stream, run func(context.Context) (*nccl.Work, error)) *Task {
	t := &Task{engine: e, name: name, launched: make(chan struct{})}
	if err := e.Err(); err != nil {
		return failed(fmt.Errorf("%s: %w", name, err))
	}
	var err error
	if t.ready, err = e.res.dev.Mark(ctx, on); err != nil {
		return failed(fmt.Errorf("%s: %w", name, err))
	}
	added := e.queue.Add(func() (err error) {
		t.work, err = e.execute(t, run)
		return err
	}, t.end)
	if !added {
		e.addStrayEvent(t.ready)
		return failed(fmt.Errorf("%s: %w", name, nccl.ErrClosed))
	}
	select {
	case e.started <- struct{}{}:
	default: // the watch has not yet received the previous signal
	}
	return t
}

func (t *Task) end(err error) {
	t.err = err
	close(t.launched)
}

// addStrayEvent keeps an event, or none, that nobody waits for until the engine is left.
func (e *Engine) addStrayEvent(event *nccl.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.strayEvents = append(e.strayEvents, event)
}

func (e *Engine) execute(t *Task, run func(context.Context) (*nccl.Work, error)) (*nccl.Work, error) {
	e.reached = progress{e.comm.Generation(), e.reached.Task + 1, 0}
	err := t.ready.Before(e.lifetime, e.res.stream)
	var work *nccl.Work
	if err == nil {
		work, err = run(e.lifetime)
	}
	if err == nil {
		return work, nil
	}
	e.addStrayEvent(t.ready)
	return nil, e.failAndWait(fmt.Errorf("%s: %w", t.name, err))
}

// Wait returns when the operation is done on this rank's GPU, or with the failure of the
// generation; the buffers are undefined then. The end of ctx does not end the operation; that of
// the communicator does.
func (t *Task) Wait(ctx context.Context) error {
	if err := t.queued(ctx); err != nil || t.work == nil {
		return err
	}
	err := t.work.Wait(ctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return t.engine.failAndWait(err)
}

// Before makes the work queued on s from now on wait for the operation. It waits itself until all
// of the operation is queued on the GPU: with a single node that is soon, with several it includes
// what goes between them. For errors see Wait; one that comes later is returned by what follows,
// and s continues with an undefined buffer.
func (t *Task) Before(ctx context.Context, s *nccl.Stream) error {
	if err := t.queued(ctx); err != nil || t.work == nil {
		return err
	}
	err := t.work.Before(ctx, s)
	if failure := t.engine.Err(); err != nil && failure != nil {
		return failure
	}
	return err
}

// queued waits until the whole operation is queued on the GPU.
func (t *Task) queued(ctx context.Context) error {
	select {
	case <-t.launched:
		return t.err
	default:
	}
	select {
	case <-t.launched:
		return t.err
	case <-t.engine.lifetime.Done():
		return t.engine.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// maxFlight is how many launches may be running on the GPU before a new one waits for the oldest.
// It limits the events that they hold.
const maxFlight = 16

// launch queues NCCL operations as one group on the engine's stream; without operations it does
// nothing.
func (e *Engine) launch(ctx context.Context, ops ...nccl.Operation) (*nccl.Work, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	e.reached.Launch++
	w, err := e.local.Do(ctx, nil, ops...)
	if err != nil {
		return nil, err
	}
	e.inFlight = append(e.inFlight, w)
	if len(e.inFlight) > maxFlight {
		err = e.inFlight[0].Wait(ctx)
		e.inFlight = e.inFlight[1:]
	}
	return w, err
}

// settled is the end of an operation that is queued on the engine's stream, but not by NCCL.
func (e *Engine) settled(ctx context.Context) (*nccl.Work, error) {
	return nil, e.res.stream.Wait(ctx)
}
