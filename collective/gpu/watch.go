package gpu

import (
	"context"
	"time"

	"github.com/regroup-io/regroup/collective/nccl"
)

// lossReportTimeout is how long the communicator may take to report which rank is lost, when NCCL
// or the driver has reported an error first, which does not say. The death of a process is known
// within a few milliseconds.
const lossReportTimeout = 250 * time.Millisecond

// revokeTimeout limits revoking, which takes milliseconds unless the device's thread hangs; only
// aborting is independent of that thread.
const revokeTimeout = time.Second

// watch ends the generation when the communicator, NCCL or this rank's GPU fails.
func (e *Engine) watch() {
	defer close(e.watched)
	var native <-chan struct{}
	if e.local != nil {
		native = e.local.Done()
	}
	if e.watchUntilEnd(native) {
		return
	}
	failure := e.comm.Failed()
	if failure == nil {
		failure = nccl.ErrClosed // closed by this process
	}
	e.end(failure)
	if err := e.stop(failure); err != nil {
		e.mu.Lock()
		e.stuck = err
		e.mu.Unlock()
	}
}

// busyCheckInterval is how often the engine checks whether it still waits for other ranks.
const busyCheckInterval = 50 * time.Millisecond

// watchUntilEnd returns false when the generation fails, and true when the engine is left. NCCL
// detects neither a frozen process nor the death of one on this host, so the communicator watches
// both while NCCL works.
func (e *Engine) watchUntilEnd(native <-chan struct{}) (over bool) {
	ticker := time.NewTicker(busyCheckInterval)
	ticker.Stop()
	doneWaiting := func() {}
	defer func() { ticker.Stop(); doneWaiting() }()
	for awaits := false; ; {
		select {
		case <-e.started:
			if !awaits {
				awaits, doneWaiting = true, e.comm.AwaitExternal()
				ticker.Reset(busyCheckInterval)
			}
		case <-ticker.C:
			if !e.busy() {
				awaits = false
				ticker.Stop()
				doneWaiting()
			}
		case <-e.comm.Context().Done():
			return false
		case <-native:
			e.reportFailure(e.local.Err())
			return false
		case cause := <-e.broken:
			e.reportFailure(cause)
			return false
		case <-e.finished:
			return true
		}
	}
}

// busy reports whether a task may be waiting for other ranks.
func (e *Engine) busy() bool {
	return e.queue.Pending() > 0 || e.local != nil && e.local.Running()
}

// reportFailure reports an error of this rank to all, unless the communicator reports a failure
// itself.
func (e *Engine) reportFailure(cause error) {
	select {
	case <-e.comm.Context().Done():
	case <-time.After(lossReportTimeout):
		e.comm.Abort(cause)
		<-e.comm.Context().Done()
	}
}

// failAndWait fails the generation with an error of this rank, unless it has failed already, and
// returns why it did.
func (e *Engine) failAndWait(cause error) error {
	select {
	case e.broken <- cause:
	default: // a failure is reported
	}
	<-e.lifetime.Done()
	return e.Err()
}

// stop ends what NCCL is running, so that no stream waits for it: a thread that waits for the GPU
// would never return. If nothing is running, NCCL's communicator can continue in the next
// generation. Otherwise it is revoked, if possible, and can be shrunk; else it is aborted. The
// error is of ErrStuck, or that of a GPU that cannot be used any more.
func (e *Engine) stop(failure error) error {
	c := e.local
	if c == nil || c.Err() == nil && c.Idle() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.opt.StuckAfter)
	defer cancel()
	short, done := context.WithTimeout(ctx, min(revokeTimeout, e.opt.StuckAfter/2))
	defer done()
	if c.Revoke(short, failure) == nil {
		return nil
	}
	return c.Abort(ctx, failure)
}
