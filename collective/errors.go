package collective

import (
	"errors"
	"fmt"
)

// What went wrong, for errors.Is.
var (
	// ErrPeerLost: a rank died, left, or fell silent. See PeerLostError.
	ErrPeerLost = errors.New("peer lost")
	// ErrAborted: somebody called Abort, or the context of an operation ended. See AbortedError.
	ErrAborted = errors.New("aborted")
	// ErrDiverged: ranks called different operations. See DivergedError.
	ErrDiverged = errors.New("programs diverged")
	// ErrRefused: a peer did not accept the connection. See RefusedError.
	ErrRefused = errors.New("refused")
	// ErrClosed: the communicator or endpoint was closed by this process.
	ErrClosed = errors.New("closed")
	// ErrInvalid: an argument or option is wrong; nothing was sent.
	ErrInvalid = errors.New("invalid")
)

// Causes inside a PeerLostError.
var (
	// ErrLeft: the rank closed its communicator while others still needed it.
	ErrLeft = errors.New("left")
	// ErrSilent: nothing came from the rank for Options.StallAfter.
	ErrSilent = errors.New("silent")
	// ErrUnreachable: no connection to the rank could be made for half of Options.StallAfter.
	ErrUnreachable = errors.New("unreachable")
)

// PeerLostError names the rank without which the generation cannot go on. If
// several ranks die together, ranks may name different ones of them.
type PeerLostError struct {
	Rank       int
	Generation uint64
	// Cause is what was seen. On ranks that were told by others it is only text,
	// except for ErrLeft and ErrSilent.
	Cause error
	// Witness is the rank that could not reach Rank or lost its connection to it, on all ranks the same, if Witnessed.
	// Otherwise somebody was told of the loss from outside and called Abort, or Rank said itself that it leaves.
	Witness   int
	Witnessed bool
}

func (e *PeerLostError) Error() string {
	return fmt.Sprintf("generation %d: peer lost: rank %d: %v", e.Generation, e.Rank, e.Cause)
}

// Is makes errors.Is(err, ErrPeerLost) true.
func (e *PeerLostError) Is(target error) bool { return target == ErrPeerLost }

func (e *PeerLostError) Unwrap() error { return e.Cause }

// AbortedError says that Rank gave the generation up without a rank being lost.
type AbortedError struct {
	Rank       int
	Generation uint64
	// Cause was given to Abort, or is the cause of the context that ended. On other
	// ranks it is only text.
	Cause error
}

func (e *AbortedError) Error() string {
	return fmt.Sprintf("generation %d: aborted by rank %d: %v", e.Generation, e.Rank, e.Cause)
}

// Is makes errors.Is(err, ErrAborted) true.
func (e *AbortedError) Is(target error) bool { return target == ErrAborted }

func (e *AbortedError) Unwrap() error { return e.Cause }

// DivergedError says that two neighbouring ranks disagree on what the current
// operation is: a bug in the program, or ranks that run different programs.
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

// RefusedError is a peer's "no" to a connection.
type RefusedError struct {
	Rank   int    // who refused; -1 = a host, see Endpoint.Visit
	Reason string // as the peer put it
	code   replyCode
}

func (e *RefusedError) Error() string {
	if e.Rank < 0 {
		return "refused: " + e.Reason
	}
	return fmt.Sprintf("refused by rank %d: %s", e.Rank, e.Reason)
}

// Is makes errors.Is(err, ErrRefused) true.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}
