package events

import (
	"context"
	"errors"
	"fmt"
)

// Code classifies an error. Callers act on the code and never on the text; it crosses the wire in a header.
type Code string

// The closed list of error codes.
const (
	Invalid     Code = "invalid"     // the input can never be accepted as it is
	NotFound    Code = "not_found"   // no such entity
	Conflict    Code = "conflict"    // somebody else was first: read and decide again
	Fenced      Code = "fenced"      // of an old generation or incarnation
	Exhausted   Code = "exhausted"   // a budget or a capacity is used up
	Unavailable Code = "unavailable" // try again later
	Cancelled   Code = "cancelled"   // the caller gave up
	TooLarge    Code = "too_large"   // the payload is over the limit
	Newer       Code = "newer"       // written by a newer version than this one understands
	Internal    Code = "internal"    // our own fault
)

// Error is an error with a code. Its text is for people.
type Error struct {
	Code Code
	Text string
	Err  error // cause, may be nil
}

func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrConflict) compare codes.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Text == "" && t.Code == e.Code
}

// Sentinels to compare with errors.Is.
var (
	ErrInvalid     error = &Error{Code: Invalid}
	ErrNotFound    error = &Error{Code: NotFound}
	ErrConflict    error = &Error{Code: Conflict}
	ErrFenced      error = &Error{Code: Fenced}
	ErrExhausted   error = &Error{Code: Exhausted}
	ErrUnavailable error = &Error{Code: Unavailable}
	ErrTooLarge    error = &Error{Code: TooLarge}
	ErrNewer       error = &Error{Code: Newer}
)

// Errorf makes an error with a code; its %w operands become the cause.
func Errorf(code Code, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	cause := errors.Unwrap(err)
	if _, several := err.(interface{ Unwrap() []error }); several {
		cause = err
	}
	return &Error{Code: code, Text: err.Error(), Err: cause}
}

// CodeOf returns the code of err: Cancelled for the end of a context, Internal for any other foreign error, empty for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Cancelled
	}
	return Internal
}
