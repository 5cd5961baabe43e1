package control

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/collective/internal/frame"
	"github.com/regroup-io/regroup/collective/shm"
)

const (
	// abortWriteTimeout limits the writing of an abort. The buffers of a healthy connection take it
	// at once.
	abortWriteTimeout = 20 * time.Millisecond
	// blameDelay is how long a broken connection is not yet blamed on a neighbour that is alive:
	// the news of another failure may be on its way.
	blameDelay = 5 * time.Millisecond
	// blameProbeTimeout is how long the neighbour's endpoint may take to say that it is alive.
	blameProbeTimeout = 250 * time.Millisecond
)

// Failed returns why the session has failed, or nil.
func (s *Session) Failed() error {
	if p := s.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// Abort fails the session on all ranks: every pending and later operation here returns within
// milliseconds. If cause is or wraps a *PeerLostError, all ranks report that rank as lost,
// otherwise an *AbortedError with this rank.
func (s *Session) Abort(cause error) {
	if cause == nil {
		cause = errors.New("no cause given")
	}
	if lost, ok := errors.AsType[*PeerLostError](cause); ok && lost.Rank >= 0 && lost.Rank < s.cfg.World {
		why := lost.Cause
		if why == nil {
			why = errors.New("no cause given")
		}
		s.Fail(&PeerLostError{Rank: lost.Rank, Generation: s.cfg.Generation, Cause: why})
		return
	}
	s.Fail(&AbortedError{Rank: s.cfg.Rank, Generation: s.cfg.Generation, Cause: cause})
}

// Lost is the loss of a rank that this rank has observed.
func (s *Session) Lost(rank int, cause error) error {
	return &PeerLostError{
		Rank: rank, Generation: s.cfg.Generation, Cause: cause,
		Witness: s.cfg.Rank, Witnessed: !errors.Is(cause, ErrLeft),
	}
}

// Diverged fails the session because a rank is in another operation.
func (s *Session) Diverged(peer int, mine, theirs string) {
	s.Fail(&DivergedError{Generation: s.cfg.Generation, Rank: s.cfg.Rank, Peer: peer, Mine: mine, Theirs: theirs})
}

// Fail records the first failure and wakes all waiters. The order matters: a waiter that is woken
// by a data connection must find the failure, and so must one that opens a data connection too late
// for Interrupt to find it.
func (s *Session) Fail(failure error) {
	if s.Failed() != nil {
		return
	}
	s.failing.Lock()
	defer s.failing.Unlock()
	if s.ctx.Err() != nil || !s.failure.CompareAndSwap(nil, &failure) {
		return
	}
	for _, l := range s.links() {
		_ = l.conn.SetWriteDeadline(time.Now().Add(abortWriteTimeout))
	}
	s.data.Interrupt()
	s.cancel(failure)
}

// outcome is how the generation ended here, encoded for peers.
func (s *Session) outcome() []byte { return encodeFailure(s.Ended(), s.cfg.Rank) }

// sendAbort sends the outcome over a link that has no writer.
func (s *Session) sendAbort(l *link) {
	_ = l.conn.SetWriteDeadline(time.Now().Add(abortWriteTimeout))
	_ = l.send(frame.Header{Kind: frame.Abort}, s.outcome())
}

// decode decodes a peer's outcome. That this rank has left is ErrClosed here.
func (s *Session) decode(b []byte) (error, bool) {
	failure, ok := decodeFailure(b, s.cfg.Generation, s.cfg.World)
	var lost *PeerLostError
	if s.closing.Load() && errors.As(failure, &lost) && lost.Rank == s.cfg.Rank {
		return ErrClosed, ok
	}
	return failure, ok
}

// Blame fails the session for a broken connection, unless the neighbour's endpoint knows another
// reason, or one arrives within blameDelay.
func (s *Session) Blame(rank int, cause error) {
	if s.ctx.Err() != nil {
		return
	}
	if s.HasLeft(rank) {
		cause = ErrLeft
	}
	if errors.Is(cause, shm.ErrDead) { // nobody is left to be asked
		s.Fail(s.Lost(rank, cause))
		return
	}
	s.FailAfterProbe(rank, s.Lost(rank, cause))
}

// FailAfterProbe fails the session, unless a rank's endpoint knows another reason, or one arrives
// within blameDelay. A dead process refuses the connection at once. One that merely left says why,
// so that a loaded machine on which the abort is late blames no wrong rank.
func (s *Session) FailAfterProbe(rank int, failure error) {
	limit, cancel := context.WithTimeoutCause(s.ctx, blameProbeTimeout, ErrSilent)
	defer cancel()
	conn, err := s.dial(limit, rank, PurposeProbe, 0)
	var lost *PeerLostError
	switch {
	case IsOutcome(err) && !(errors.As(err, &lost) && lost.Rank == s.cfg.Rank):
		s.Fail(err)
		return
	case err == nil: // it is alive, and knows of nothing yet
		_ = conn.Close()
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(blameDelay):
		}
	}
	s.Fail(failure)
}

// FailConn turns an error of a data connection into the session's failure.
func (s *Session) FailConn(rank int, err error) error {
	switch {
	case s.ctx.Err() != nil:
	case IsOutcome(err):
		s.Fail(err)
	case errors.Is(err, ErrRefused), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), exhausted(err):
		s.Abort(err)
	default:
		s.Blame(rank, err)
	}
	return s.Ended()
}

// exhausted reports errors that no peer is to blame for: this process has no descriptors left.
func exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// AbortOnDone aborts the session when ctx ends during an operation: a part of it is on its way and
// cannot be taken back. The result stops that.
func (s *Session) AbortOnDone(ctx context.Context) func() bool {
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() { s.Abort(context.Cause(ctx)) })
}

// OrContext returns err, unless it came because ctx ended: then that aborts the session, and no
// peer is to blame.
func (s *Session) OrContext(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	s.Abort(context.Cause(ctx))
	return s.Ended()
}
