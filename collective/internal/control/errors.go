package control

import (
	"errors"
	"fmt"
)

// Errors for errors.Is, which package collective describes.
var (
	ErrPeerLost = errors.New("peer lost")
	ErrAborted  = errors.New("aborted")
	ErrDiverged = errors.New("programs diverged")
	ErrRefused  = errors.New("refused")
	ErrClosed   = errors.New("closed")
	ErrInvalid  = errors.New("invalid")

	// Causes inside a PeerLostError.

	ErrLeft        = errors.New("left")
	ErrSilent      = errors.New("silent")
	ErrUnreachable = errors.New("unreachable")
)

// PeerLostError names the rank without which the generation cannot continue. If several ranks die
// together, ranks may name different ones of them.
type PeerLostError struct {
	Rank       int
	Generation uint64
	// Cause is what was observed. On ranks that heard of it from others it is only text, except for
	// ErrLeft and ErrSilent.
	Cause error
	// Witness is the rank that could not reach Rank or lost its connection to it, if Witnessed is
	// set. All ranks name the same one. Otherwise the loss was passed to Abort by a caller that
	// learned of it elsewhere, or Rank itself said that it leaves.
	Witness   int
	Witnessed bool
}

func (e *PeerLostError) Error() string {
	return fmt.Sprintf("generation %d: peer lost: rank %d: %v", e.Generation, e.Rank, e.Cause)
}

// Unwrap makes it an ErrPeerLost and its cause.
func (e *PeerLostError) Unwrap() []error { return []error{ErrPeerLost, e.Cause} }

// AbortedError says that Rank gave the generation up without a rank being lost.
type AbortedError struct {
	Rank       int
	Generation uint64
	// Cause was given to Abort, or is the cause of the context that ended. On other ranks it is
	// only text.
	Cause error
}

func (e *AbortedError) Error() string {
	return fmt.Sprintf("generation %d: aborted by rank %d: %v", e.Generation, e.Rank, e.Cause)
}

// Unwrap makes it an ErrAborted and its cause.
func (e *AbortedError) Unwrap() []error { return []error{ErrAborted, e.Cause} }

// DivergedError says that two neighbouring ranks disagree on what the current operation is: a bug
// in the program, or ranks that run different programs.
type DivergedError struct {
	Generation   uint64
	Rank, Peer   int
	Mine, Theirs string // what Rank and Peer were doing
}

func (e *DivergedError) Error() string {
	return fmt.Sprintf("generation %d: programs diverged: rank %d is in %s, rank %d in %s",
		e.Generation, e.Rank, e.Mine, e.Peer, e.Theirs)
}

// Is makes errors.Is(err, ErrDiverged) true.
func (e *DivergedError) Is(target error) bool { return target == ErrDiverged }

// RefusedError is the refusal of a connection by a peer.
type RefusedError struct {
	Rank   int    // of the peer; -1 = an endpoint outside of any generation
	Reason string // in the words of the peer, or what it can mean that it gave none
	code   replyCode
}

// refusedBy returns the error for a refusal. A peer gives a reason only to those that have proved
// the token.
func refusedBy(rank int, code replyCode, detail []byte) *RefusedError {
	reason := string(detail)
	switch {
	case reason != "":
	case code == replyBusy:
		reason = "not now, try again"
	default:
		reason = "it knows no such job, or its generation is another one, or the token is wrong"
	}
	return &RefusedError{Rank: rank, Reason: reason, code: code}
}

func (e *RefusedError) Error() string {
	if e.Rank < 0 {
		return "refused: " + e.Reason
	}
	return fmt.Sprintf("refused by rank %d: %s", e.Rank, e.Reason)
}

// Is makes errors.Is(err, ErrRefused) true.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// Invalid returns an ErrInvalid with a message.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// IsOutcome reports whether an error of dialing says how the generation ended at the peer.
func IsOutcome(err error) bool {
	return errors.Is(err, ErrPeerLost) || errors.Is(err, ErrAborted) || errors.Is(err, ErrDiverged) || errors.Is(err, ErrClosed)
}
