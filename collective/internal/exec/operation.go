package exec

import (
	"context"

	"github.com/regroup-io/regroup/collective/internal/control"
)

// Acquire waits until all operations that were called before are over. The caller may then run
// operations until Release.
func (e *Engine) Acquire(ctx context.Context) error {
	s := e.session
	if err := s.Usable(); err != nil {
		return err
	}
	if !e.operation.TryAcquire(1) {
		if err := e.await(ctx); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		e.operation.Release(1)
		return context.Cause(ctx)
	}
	// BeginWait before Usable: a closing session fails Usable first and checks Busy then, so that
	// one of the two sees the other.
	s.BeginWait()
	if err := s.Usable(); err != nil {
		e.Release()
		return err
	}
	return nil
}

// await waits for the operations that were called before.
func (e *Engine) await(ctx context.Context) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.session.Context(), cancel)()
	switch err := e.operation.Acquire(waiting, 1); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return e.session.Ended()
}

// Release lets the next operation begin.
func (e *Engine) Release() {
	e.session.EndWait()
	e.operation.Release(1)
}

// shortOp is the size up to which an operation is usually over before a watch of its context would
// be set up.
const shortOp = 16 << 10

// opContext aborts the session when the context of the running operation ends. Short operations are
// watched only from the moment in which they sleep.
type opContext struct {
	session *control.Session
	ctx     context.Context //nolint:containedctx // of the running operation
	stop    func() bool     // nil = not watched
}

func (o *opContext) begin(ctx context.Context, bytes int) {
	o.ctx = ctx
	if bytes > shortOp {
		o.watch()
	}
}

func (o *opContext) watch() {
	if o.stop == nil {
		o.stop = o.session.AbortOnDone(o.ctx)
	}
}

func (o *opContext) end() {
	if o.stop != nil {
		o.stop()
	}
	o.stop, o.ctx = nil, nil
}
