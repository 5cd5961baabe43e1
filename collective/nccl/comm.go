package nccl

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// CommOptions describe one rank of one communicator.
type CommOptions struct {
	Rank, World int
	// ID is from Library.UniqueID, the same on all ranks.
	ID UniqueID

	// Name is shown in NCCL's logs (since 2.27). May be empty.
	Name string

	// Stream is where operations are queued. Nil: a stream of the communicator's own. Nothing else
	// may be queued on it while Do runs.
	Stream *Stream

	// Timeout is the timeout of one step: creating the communicator, a launch, a wait, an ending.
	// Zero: only the contexts decide. Without either, a wait never ends when NCCL does not detect a
	// death.
	Timeout time.Duration
}

func (o *CommOptions) validate(d *Device) error {
	switch {
	case o.World < 1:
		return invalid("World is %d", o.World)
	case o.Rank < 0 || o.Rank >= o.World:
		return invalid("Rank %d is not within 0 to %d", o.Rank, o.World-1)
	case o.Stream != nil && o.Stream.dev != d:
		return invalid("the stream is on device %d, not on %d", o.Stream.dev.ordinal, d.ordinal)
	case o.Timeout < 0:
		return invalid("Timeout %v is negative", o.Timeout)
	}
	return nil
}

// Comm is one rank of a communicator. Its methods may be called from any goroutine; launches run
// one at a time, in the order of the calls.
type Comm struct {
	dev    *Device
	opt    CommOptions
	stream *Stream
	config *config // NCCL may read names in it as long as the communicator lives

	// native is ncclComm_t, 0 once an ending has taken it. The device's thread uses it, and loads
	// it before every call.
	native atomic.Uintptr
	// self and child are where NCCL writes this communicator and the one that Reform makes of it.
	// Its threads use both until the communicators are connected (2.14 reads self there, child is
	// written last). Go's heap does not move, and these fields keep the two from being garbage
	// collected.
	self, child *uintptr

	launchLock chan struct{} // capacity 1: held by the launching goroutine
	revoked    bool          // guarded by launchLock: failed, nothing runs, and it can be shrunk

	lifetime context.Context //nolint:containedctx // ends with the communicator; its cause is the failure
	end      context.CancelCauseFunc

	newest   *Work       // used on the device's thread; nil = it is done
	underWay atomic.Bool // the newest may still be running; updated by pollState

	ending  atomic.Bool
	ended   chan struct{}
	outcome error // of the ending; valid once ended is closed
}

func (d *Device) newComm(o CommOptions) *Comm {
	c := &Comm{
		dev: d, opt: o, stream: o.Stream, self: new(uintptr), child: new(uintptr),
		launchLock: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	c.lifetime, c.end = context.WithCancelCause(context.Background())
	c.launchLock <- struct{}{}
	return c
}

// Init creates this rank of a new communicator and returns when all ranks are connected.
func (d *Device) Init(ctx context.Context, o CommOptions) (*Comm, error) {
	if err := o.validate(d); err != nil {
		return nil, err
	}
	c := d.newComm(o)
	c.config = newConfig()
	c.config.CommName = cString(o.Name)
	ctx, done := c.scope(ctx, "init")
	defer done()
	const op = "ncclCommInitRankConfig"
	err := d.do(ctx, op, func() error {
		code := d.lib.nccl.CommInitRankConfig(c.self, int32(o.World), idArgument{o.ID}, int32(o.Rank), c.config)
		if !code.working() {
			return d.lib.failure(op, code, 0)
		}
		c.native.Store(atomic.LoadUintptr(c.self))
		return nil
	})
	if err == nil {
		err = c.settle(ctx, op, nil)
	}
	if err == nil {
		err = c.begin(ctx)
	}
	if err != nil {
		return nil, c.discard(ctx, fmt.Errorf("rank %d of %d: %w", o.Rank, o.World, err))
	}
	return c, nil
}

// begin assigns the connected communicator its stream and starts to watch it.
func (c *Comm) begin(ctx context.Context) error {
	return c.dev.do(ctx, "cuStreamCreate", func() error {
		if c.stream == nil {
			handle, err := c.dev.newStream()
			if err != nil {
				return err
			}
			c.stream = &Stream{dev: c.dev, handle: handle, own: true}
		}
		c.dev.watched[c] = struct{}{}
		return nil
	})
}

// discard ends a communicator that could not be created. It returns err, joined with an error of
// ending it.
func (c *Comm) discard(ctx context.Context, err error) error {
	// The end of the context may be the reason.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxAbortTime)
	defer cancel()
	if end := c.Abort(ctx, err); end != nil {
		return errors.Join(err, end)
	}
	return err
}

// Rank is this process's rank in the communicator.
func (c *Comm) Rank() int { return c.opt.Rank }

// World is the number of ranks.
func (c *Comm) World() int { return c.opt.World }

// Done is closed when the communicator has failed or was closed. Err says why.
func (c *Comm) Done() <-chan struct{} { return c.lifetime.Done() }

// Ended reports whether Abort, Close or Reform has begun to free what NCCL holds.
func (c *Comm) Ended() bool { return c.native.Load() == 0 }

// Running reports whether the newest launch may still be running, as of the last poll of NCCL. It
// asks nobody, and so never waits.
func (c *Comm) Running() bool { return c.underWay.Load() }

// Idle asks the GPU whether all that was queued on the communicator's stream is done. A launch or a
// device's thread that hangs counts as not idle.
func (c *Comm) Idle() bool {
	ctx, cancel := context.WithTimeout(context.Background(), yieldTimeout)
	defer cancel()
	if c.lock(ctx) != nil {
		return false
	}
	defer c.unlock()
	return c.dev.call(ctx, "cuStreamQuery", func(d *cudaCalls) int32 { return d.StreamQuery(c.stream.handle) }) == nil
}

// Err is why the communicator failed or was closed, nil while it works.
func (c *Comm) Err() error { return context.Cause(c.lifetime) }

// scope limits a step: by the caller's context, the communicator's lifetime and Timeout.
func (c *Comm) scope(ctx context.Context, op string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.lifetime, func() { cancel(context.Cause(c.lifetime)) })
	if err := c.Err(); err != nil { // check at once: AfterFunc is not immediate
		cancel(err)
	}
	ctx, free := withTimeout(ctx, c.opt.Timeout, op)
	return ctx, func() { free(); stop(); cancel(nil) }
}

// withTimeout limits a step by Timeout alone, for steps of a failed communicator.
func withTimeout(ctx context.Context, timeout time.Duration, op string) (context.Context, func()) {
	if timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, timeout, &timeoutError{op, timeout})
}

// fail ends the communicator's lifetime; the first cause counts. All waits return with it. The
// native communicator stays until Abort, Close or Reform.
func (c *Comm) fail(cause error) {
	c.end(cause)
}

// state returns NCCL's state of the communicator: Success or InProgress, or else an error. It runs
// on the device's thread.
func (c *Comm) state() (Code, error) {
	const op = "ncclCommGetAsyncError"
	l, native := c.dev.lib, c.native.Load()
	if native == 0 {
		return 0, c.endedError()
	}
	var state Code
	if err := l.check(op, l.nccl.CommGetAsyncError(native, &state), native); err != nil {
		return 0, err
	}
	if !state.working() {
		return state, l.failure(op, state, native)
	}
	return state, nil
}

// call makes a call of NCCL on the communicator, on the device's thread. Its result is Success or
// InProgress, or else an error.
func (c *Comm) call(ctx context.Context, op string, f func(native uintptr) Code) (Code, error) {
	var code Code
	err := c.dev.do(ctx, op, func() error {
		native := c.native.Load()
		if native == 0 {
			return c.endedError()
		}
		if code = f(native); !code.working() {
			return c.dev.lib.failure(op, code, native)
		}
		return nil
	})
	if err != nil {
		return 0, err // f may still be running
	}
	return code, nil
}

func (c *Comm) endedError() error {
	if err := c.Err(); err != nil {
		return err
	}
	return ErrClosed
}

// pollState polls a communicator that may be idle.
func (c *Comm) pollState() {
	if _, err := c.state(); err != nil {
		delete(c.dev.watched, c)
		c.fail(err)
		return
	}
	if w := c.newest; w != nil {
		passed := w.handle == 0
		if !passed {
			passed, _ = c.dev.passed(w.handle) // the waiter gets the error
		}
		if passed {
			c.newest = nil
			c.underWay.Store(false)
		}
	}
}

// settle waits until NCCL has finished a call, and then runs finish, if any, before anything else
// runs on the device's thread. If it cannot, the communicator has failed: what NCCL will still do
// is unknown.
func (c *Comm) settle(ctx context.Context, op string, finish func() error) error {
	err := c.dev.poll(ctx, op, func() (bool, error) {
		state, err := c.state()
		if err != nil || state == InProgress {
			return false, err
		}
		if finish != nil {
			err = finish()
		}
		return true, err
	})
	if err != nil {
		c.fail(err)
	}
	return err
}

// lock acquires the right to launch; unlock releases it.
func (c *Comm) lock(ctx context.Context) error {
	select {
	case <-c.launchLock:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Comm) unlock() { c.launchLock <- struct{}{} }
