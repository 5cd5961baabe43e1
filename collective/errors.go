package collective

import "github.com/regroup-io/regroup/collective/internal/control"

// Errors for errors.Is.
var (
	// ErrPeerLost: a rank died, left, or fell silent. See PeerLostError.
	ErrPeerLost = control.ErrPeerLost
	// ErrAborted: Abort was called, or the context of an operation ended. See AbortedError.
	ErrAborted = control.ErrAborted
	// ErrDiverged: ranks called different operations. See DivergedError.
	ErrDiverged = control.ErrDiverged
	// ErrRefused: a peer did not accept the connection. See RefusedError.
	ErrRefused = control.ErrRefused
	// ErrClosed: the communicator or endpoint was closed by this process.
	ErrClosed = control.ErrClosed
	// ErrInvalid: an argument or option is wrong; nothing was sent.
	ErrInvalid = control.ErrInvalid
)

// Causes inside a PeerLostError.
var (
	// ErrLeft: the rank closed its communicator while others still needed it.
	ErrLeft = control.ErrLeft
	// ErrSilent: nothing came from the rank for Options.StallAfter.
	ErrSilent = control.ErrSilent
	// ErrUnreachable: no connection to the rank could be made for half of Options.StallAfter.
	ErrUnreachable = control.ErrUnreachable
)

type (
	// PeerLostError names the rank without which the generation cannot continue. If several ranks
	// die together, ranks may name different ones of them.
	PeerLostError = control.PeerLostError
	// AbortedError says that a rank gave the generation up without a rank being lost.
	AbortedError = control.AbortedError
	// DivergedError says that two neighbouring ranks disagree on what the current operation is: a
	// bug in the program, or ranks that run different programs.
	DivergedError = control.DivergedError
	// RefusedError is the refusal of a connection by a peer.
	RefusedError = control.RefusedError
)
