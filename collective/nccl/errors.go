package nccl

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors for errors.Is.
var (
	// ErrUnavailable: a library is absent or unusable. See UnavailableError.
	ErrUnavailable = errors.New("not available")
	// ErrUnsupported: this version of NCCL cannot do it.
	ErrUnsupported = errors.New("not supported by this NCCL")
	// ErrInvalid: an argument is wrong; nothing was called.
	ErrInvalid = errors.New("invalid")
	// ErrClosed: the communicator or device was closed by this process.
	ErrClosed = errors.New("closed")
	// ErrAborted: this process called Abort. See AbortedError.
	ErrAborted = errors.New("aborted")
	// ErrRemote: a peer has died or cannot be reached. NCCL does not report which: ask the control
	// plane.
	ErrRemote = errors.New("a peer is gone or cannot be reached")
	// ErrTimeout: something took longer than CommOptions.Timeout, or NCCL itself gave up waiting.
	ErrTimeout = errors.New("timeout")
	// ErrStuck: a native call does not return. The process must restart. See StuckError.
	ErrStuck = errors.New("stuck")
	// ErrNeedsID: this communicator cannot be shrunk; a new one needs a fresh id from
	// Library.UniqueID, the same on all ranks.
	ErrNeedsID = errors.New("a fresh id is needed")
)

// Error is a result of NCCL other than success.
type Error struct {
	Op   string // the call, such as "ncclAllReduce"
	Code Code
	Text string // NCCL's text for the code
	Last string // the text of ncclGetLastError, often more exact; may be of another communicator
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (%s)", e.Op, e.Text, e.Code)
	if e.Last != "" {
		s += ": " + strings.TrimSpace(e.Last)
	}
	return s
}

// Is makes errors.Is(err, ErrRemote) and errors.Is(err, ErrTimeout) true for the results that mean
// it.
func (e *Error) Is(target error) bool {
	return e.Code == RemoteError && target == ErrRemote || e.Code == TimedOut && target == ErrTimeout
}

// DriverError is a result of the CUDA driver other than success.
type DriverError struct {
	Op   string // the call, such as "cuMemAlloc"
	Code int32  // CUresult
	Name string // such as "CUDA_ERROR_OUT_OF_MEMORY"
}

func (e *DriverError) Error() string { return fmt.Sprintf("%s: %s (%d)", e.Op, e.Name, e.Code) }

// UnavailableError says why a library cannot be used.
type UnavailableError struct {
	Library string   // such as "libnccl.so.2"
	Tried   []string // each place and what happened there, in order
	Missing []string // symbols that the library, once found, lacks
	Cause   error    // found and complete, but its initialisation fails; nil otherwise
}

func (e *UnavailableError) Error() string {
	s := e.Library + " is not available"
	if len(e.Missing) > 0 {
		s += ": it lacks " + strings.Join(e.Missing, ", ")
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	if len(e.Tried) > 0 {
		s += "; tried " + strings.Join(e.Tried, "; ")
	}
	return s
}

// Unwrap makes it an ErrUnavailable and its cause.
func (e *UnavailableError) Unwrap() []error { return []error{ErrUnavailable, e.Cause} }

// AbortedError is what every call on a communicator returns after Abort.
type AbortedError struct{ Cause error }

func (e *AbortedError) Error() string { return fmt.Sprintf("aborted: %v", e.Cause) }

// Unwrap makes it an ErrAborted and its cause.
func (e *AbortedError) Unwrap() []error { return []error{ErrAborted, e.Cause} }

// StuckError names a native call that does not return. Its thread and its GPU resources cannot be
// freed.
type StuckError struct {
	Op    string
	After time.Duration
}

func (e *StuckError) Error() string {
	return fmt.Sprintf("stuck: %s has not returned after %v; the process must restart", e.Op, e.After)
}

// Is makes errors.Is(err, ErrStuck) true.
func (e *StuckError) Is(target error) bool { return target == ErrStuck }

type timeoutError struct {
	op    string
	after time.Duration
}

func (e *timeoutError) Error() string { return fmt.Sprintf("%s took longer than %v", e.op, e.after) }

func (e *timeoutError) Is(target error) bool { return target == ErrTimeout }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

func unsupported(what string, since Version, have Version) error {
	return fmt.Errorf("%s: %w: it came with %v, this is %v", what, ErrUnsupported, since, have)
}
