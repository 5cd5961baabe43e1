package collective

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/collective/shm"
)

const (
	// sayAbort is how long writing the abort may take. The buffers of a healthy
	// connection take it at once.
	sayAbort = 20 * time.Millisecond
	// grace is how long a broken connection is not yet blamed on a neighbour that lives:
	// the news of another failure may be on the way.
	grace = 5 * time.Millisecond
	// askFor is how long the neighbour's endpoint is given to say that it lives.
	askFor = 250 * time.Millisecond
)

// Failed returns why the communicator is poisoned, or nil.
func (c *Communicator) Failed() error {
	if p := c.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// Abort poisons the communicator on all ranks: every pending and later call here
// returns within milliseconds. If cause is or wraps a *PeerLostError, all ranks
// report that rank as lost; otherwise an *AbortedError naming this rank. The first
// failure wins; later ones change nothing. It does not wait for anything, and does
// not replace Close.
func (c *Communicator) Abort(cause error) {
	if cause == nil {
		cause = errors.New("no cause given")
	}
	var lost *PeerLostError
	if errors.As(cause, &lost) && lost.Rank >= 0 && lost.Rank < c.opt.World {
		why := lost.Cause
		if why == nil {
			why = errors.New("no cause given")
		}
		c.fail(&PeerLostError{Rank: lost.Rank, Generation: c.opt.Generation, Cause: why})
		return
	}
	c.fail(&AbortedError{Rank: c.opt.Rank, Generation: c.opt.Generation, Cause: cause})
}

// lost is what this rank has seen itself.
func (c *Communicator) lost(rank int, cause error) error {
	return &PeerLostError{
		Rank: rank, Generation: c.opt.Generation, Cause: cause,
		Witness: c.opt.Rank, Witnessed: !errors.Is(cause, ErrLeft),
	}
}

// fail records the first failure and wakes everybody. The order matters: whoever is
// woken by a wire must find the failure, and so must who makes a wire that is not shut here.
func (c *Communicator) fail(failure error) {
	c.failing.Lock()
	defer c.failing.Unlock()
	if c.life.Err() != nil || !c.failure.CompareAndSwap(nil, &failure) {
		return
	}
	for _, l := range c.links() {
		_ = l.conn.SetWriteDeadline(time.Now().Add(sayAbort))
	}
	c.interrupt()
	c.closeLanes()
	c.endLife(failure)
}

// report has a failure go to OnFailure from now on, and returns the one that came before.
func (c *Communicator) report() error {
	c.failing.Lock()
	defer c.failing.Unlock()
	c.reports.Store(c.Failed() == nil)
	return c.Failed()
}

// interrupt wakes whoever waits for a peer in an operation. What is made after it finds
// that life is over.
func (c *Communicator) interrupt() {
	c.wires(wire.shut)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.local != nil {
		c.local.Abort()
	}
}

// verdict is what peers are told about the end of this communicator.
func (c *Communicator) verdict() []byte {
	if failure := c.Failed(); failure != nil {
		return encodeVerdict(failure, c.opt.Rank)
	}
	return encodeVerdict(ErrClosed, c.opt.Rank)
}

// told is the reverse, for what a peer says. That this rank has left is no news to it.
func (c *Communicator) told(b []byte) (error, bool) {
	failure, ok := decodeVerdict(b, c.opt.Generation, c.opt.World)
	var lost *PeerLostError
	if c.closing.Load() && errors.As(failure, &lost) && lost.Rank == c.opt.Rank {
		return ErrClosed, ok
	}
	return failure, ok
}

// blame fails the communicator for a broken connection, unless the neighbour's endpoint
// knows another reason, or it arrives within the grace.
func (c *Communicator) blame(rank int, cause error) {
	select {
	case <-c.life.Done():
		return
	case <-c.quit:
		return
	default:
	}
	if c.left(rank) {
		cause = ErrLeft
	}
	if errors.Is(cause, shm.ErrDead) { // nobody is left to be asked
		c.fail(c.lost(rank, cause))
		return
	}
	// A process that died refuses the connection at once. One that merely left tells
	// why, so that a loaded machine on which the abort is late blames nobody wrongly.
	limit, cancel := context.WithTimeoutCause(c.life, askFor, ErrSilent)
	defer cancel()
	conn, err := c.dial(limit, rank, forProbe, 0)
	var lost *PeerLostError
	switch {
	case isVerdict(err) && !(errors.As(err, &lost) && lost.Rank == c.opt.Rank):
		c.fail(err)
		return
	case err == nil: // it lives, and knows of nothing yet
		_ = conn.Close()
		select {
		case <-c.life.Done():
			return
		case <-c.quit:
			return
		case <-time.After(grace):
		}
	}
	c.fail(c.lost(rank, cause))
}

// isVerdict tells how a generation ended from why a connection could not be made.
func isVerdict(err error) bool {
	return errors.Is(err, ErrPeerLost) || errors.Is(err, ErrAborted) || errors.Is(err, ErrDiverged) || errors.Is(err, ErrClosed)
}

// exhausted tells errors that a peer can not help: descriptors have run out here.
func exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// gate is the state of the communicator for a call that begins.
func (c *Communicator) gate() error {
	if failure := c.Failed(); failure != nil {
		return failure
	}
	if c.closing.Load() {
		return ErrClosed
	}
	return nil
}

// watch aborts the communicator when ctx ends during an operation: part of it is on
// the wire, and cannot be taken back. The result ends the watch.
func (c *Communicator) watch(ctx context.Context) func() bool {
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() { c.Abort(context.Cause(ctx)) })
}

// unlessOver returns err, unless it came because ctx ended: then that ends the generation,
// and no peer is to blame.
func (c *Communicator) unlessOver(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	c.Abort(context.Cause(ctx))
	return c.ended()
}

const (
	// beatsPerStall is how often a heartbeat is sent within the stall limit.
	beatsPerStall = 8
	// looksPerBeat is how often the monitor looks for silent neighbours in between.
	looksPerBeat = 8
)

// monitor sends heartbeats, finds silent neighbours and reports the failure.
func (c *Communicator) monitor() {
	tick := time.NewTicker(c.opt.StallAfter / (beatsPerStall * looksPerBeat))
	defer tick.Stop()
	defer c.reportFailure()
	for before := uint64(0); ; {
		select {
		case <-c.quit:
			return
		case <-c.life.Done():
			return
		case <-tick.C:
			// Counted in ticks of this process, and not in time: if we ourselves were
			// stopped, we wake up to one tick and not to a silent world.
			looks := c.looks.Add(1)
			waits := c.waitsLong(looks)
			if looks%looksPerBeat == 0 {
				c.waits.turn(c.opt.Rank, c.waited(), time.Now())
			}
			now := c.calls.newest().seq
			long := c.busy.Load() > 0 && now == before // an operation takes its time: is it the same everywhere?
			before = now
			for _, l := range c.links() {
				if looks%looksPerBeat == 0 || long {
					l.say(sayBeat)
				}
				if l.quiet.Add(1) > beatsPerStall*looksPerBeat && waits {
					c.fail(c.lost(l.peer, ErrSilent))
				}
			}
		}
	}
}

func (c *Communicator) reportFailure() {
	failure := c.Failed()
	if failure != nil && !errors.Is(failure, ErrClosed) && c.reports.Load() && c.opt.OnFailure != nil {
		c.opt.OnFailure(failure)
	}
}
