// Package exitcode answers one question: with which number does the command end? The numbers are
// documented and stable.
package exitcode

import (
	"context"
	"errors"

	"github.com/regroup-io/regroup/events"
)

// Exit codes of the regroup command.
const (
	OK          = 0   // done; the job succeeded
	Unexpected  = 1   // our own fault, or nothing better fits
	Usage       = 2   // bad flags or a bad spec
	NotFound    = 3   // no such job or node
	NotAllowed  = 4   // somebody else's decision stands against it
	Unavailable = 5   // the server is not reachable, or nobody answers
	JobFailed   = 10  // the job failed
	JobStopped  = 11  // the job was stopped by someone
	TimedOut    = 12  // waited long enough
	NoRoom      = 13  // cannot be placed now
	Exhausted   = 14  // the job failed because its failure budget is used up
	Interrupted = 130 // Ctrl-C before anything was submitted
	Unread      = 141 // nobody reads the output any more, as in: regroup run ... | head
)

// Error carries the exit code that a command has decided on. A nil Err means that all has been said
// already.
type Error struct {
	Code int
	Err  error
}

// Error is the text of the cause, empty when there is none.
func (e *Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Of returns the exit code of what a command returned: that of an Error, else by the error's
// events.Code.
func Of(err error) int {
	if err == nil {
		return OK
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return TimedOut
	}
	switch events.CodeOf(err) {
	case events.Invalid, events.TooLarge:
		return Usage
	case events.NotFound:
		return NotFound
	case events.Conflict, events.Fenced:
		return NotAllowed
	case events.Exhausted:
		return NoRoom
	case events.Unavailable:
		return Unavailable
	case events.Cancelled:
		return Interrupted
	}
	return Unexpected
}

// OfJob returns the exit code that stands for a job's end: Unexpected while it has not ended.
func OfJob(state events.JobState, code events.Code) int {
	switch state {
	case events.JobStateSucceeded:
		return OK
	case events.JobStateStopped:
		return JobStopped
	case events.JobStateFailed:
		if code == events.Exhausted {
			return Exhausted
		}
		return JobFailed
	}
	return Unexpected
}
