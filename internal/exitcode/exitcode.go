// Package exitcode defines the exit codes of the command, which are documented and stable.
package exitcode

import (
	"cmp"
	"context"
	"errors"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
)

// Exit codes of the regroup command.
const (
	OK          = 0   // done; the job succeeded
	Unexpected  = 1   // an internal error, or none of the others
	Usage       = 2   // bad flags or a bad spec
	NotFound    = 3   // no such job or node
	NotAllowed  = 4   // forbidden by another party's decision
	Unavailable = 5   // the server is unreachable, or does not reply
	JobFailed   = 10  // the job failed
	JobStopped  = 11  // the job was stopped
	TimedOut    = 12  // the wait has timed out
	NoRoom      = 13  // no slots are free
	Exhausted   = 14  // the job failed because its failure budget is used up
	Different   = 15  // what was compared is not the same
	Interrupted = 130 // Ctrl-C before anything was submitted
	Unread      = 141 // the output has no reader any more, as in: regroup run ... | head
)

// Error carries the exit code of a command. A nil Err means that the error was already printed.
type Error struct {
	Code int
	Err  error
}

// Error returns the text of the cause, empty when there is none.
func (e *Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Of returns the exit code for the result of a command: that of an Error, else by the error's
// errcode.Code.
func Of(err error) int {
	if err == nil {
		return OK
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return TimedOut
	}
	return cmp.Or(ofCode[errcode.Of(err)], Unexpected)
}

var ofCode = map[errcode.Code]int{
	errcode.Invalid:     Usage,
	errcode.TooLarge:    Usage,
	errcode.NotFound:    NotFound,
	errcode.Conflict:    NotAllowed,
	errcode.Fenced:      NotAllowed,
	errcode.Exhausted:   NoRoom,
	errcode.Unavailable: Unavailable,
	errcode.Cancelled:   Interrupted,
}

// OfJob returns the exit code for a job's end: Unexpected while it has not ended.
func OfJob(state events.JobState, code errcode.Code) int {
	switch state {
	case events.JobStateSucceeded:
		return OK
	case events.JobStateStopped:
		return JobStopped
	case events.JobStateFailed:
		if code == errcode.Exhausted {
			return Exhausted
		}
		return JobFailed
	}
	return Unexpected
}
