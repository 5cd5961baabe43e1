package nccl

import (
	"context"
	"errors"
	"time"
)

// verdictWithin is how long the communicator is given to say who is lost, when NCCL or the
// driver has seen an error first: they do not know. A process that died is known in a few
// milliseconds.
const verdictWithin = 250 * time.Millisecond

// revokeWithin is how long revoking may take, which is a matter of milliseconds: unless the
// device's thread hangs, of which only aborting is independent.
const revokeWithin = time.Second

// watch ends the generation when the communicator, NCCL or this rank's GPU fails.
func (e *Engine) watch() {
	defer close(e.watched)
	var native <-chan struct{}
	if e.local != nil {
		native = e.local.life.Done()
	}
	if e.attend(native) {
		return
	}
	failure := e.comm.Failed()
	if failure == nil {
		failure = ErrClosed // by this process
	}
	e.end(failure)
	if err := e.stop(failure); err != nil {
		e.queue.mu.Lock()
		e.stuck = err
		e.queue.mu.Unlock()
	}
}

// vigilEvery is how often the engine looks whether it still waits for other ranks.
const vigilEvery = 50 * time.Millisecond

// attend returns when the generation fails, with false, or when the engine is being left.
// NCCL does not notice a process that is frozen, nor one of this host that is gone: while it
// works the communicator watches over them.
func (e *Engine) attend(native <-chan struct{}) (over bool) {
	vigil := time.NewTicker(vigilEvery)
	vigil.Stop()
	relax := func() {}
	defer func() { vigil.Stop(); relax() }()
	for awaits := false; ; {
		select {
		case <-e.begun:
			if !awaits {
				awaits, relax = true, e.comm.AwaitExternal()
				vigil.Reset(vigilEvery)
			}
		case <-vigil.C:
			if !e.busy() {
				awaits = false
				vigil.Stop()
				relax()
			}
		case <-e.comm.Done():
			return false
		case <-native:
			e.blame(e.local.Err())
			return false
		case cause := <-e.broken:
			e.blame(cause)
			return false
		case <-e.over:
			return true
		}
	}
}

// busy says whether a task may be waiting for other ranks.
func (e *Engine) busy() bool {
	e.queue.mu.Lock()
	defer e.queue.mu.Unlock()
	return e.queue.running || e.local != nil && e.local.underWay.Load()
}

// blame tells all ranks of an error of this one, unless they know better.
func (e *Engine) blame(cause error) {
	select {
	case <-e.comm.Done():
	case <-time.After(verdictWithin):
		e.comm.Abort(cause)
		<-e.comm.Done()
	}
}

// suffer has the generation fail for an error of this rank, unless it has failed already,
// and returns why.
func (e *Engine) suffer(cause error) error {
	select {
	case e.broken <- cause:
	default: // there is one
	}
	<-e.life.Done()
	return e.Err()
}

// stop ends what NCCL has under way, so that no stream waits for it: a thread that waits
// for the GPU would never come back. If there is nothing it may go on to the next generation
// as it is. Otherwise it is revoked, where that is possible, and can be shrunk; else it is
// aborted. The error is of ErrStuck, or that of a GPU that cannot be used any more.
func (e *Engine) stop(failure error) error {
	c := e.local
	if c == nil || c.Err() == nil && e.idle() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.opt.StuckAfter)
	defer cancel()
	c.fail(&AbortedError{failure})
	if e.seat.dev.lib.ReformsBy() == ByRevoking && c.CanShrink() == nil {
		short, done := context.WithTimeout(ctx, min(revokeWithin, e.opt.StuckAfter/2))
		err := c.revoke(short)
		done()
		if err == nil {
			return nil
		}
	}
	return c.Abort(ctx, failure)
}

// idle says whether nothing that NCCL does is under way on this rank. Nobody launches any
// more: the engine's life is over.
func (e *Engine) idle() bool {
	ctx, cancel := context.WithTimeout(context.Background(), yieldFor)
	defer cancel()
	if e.local.lock(ctx) != nil {
		return false
	}
	defer e.local.unlock()
	s := e.seat.stream
	busy := errors.New("busy")
	return s.dev.do(ctx, "cuStreamQuery", func() error {
		if s.dev.lib.cuda.StreamQuery(s.handle) != cudaSuccess {
			return busy
		}
		return nil
	}) == nil
}
