// Package errcode defines errors with codes, which are the same in every process, and refusals
// that list everything that is wrong with an input.
package errcode

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
)

// Code classifies an error. Callers act on the code, never on the text; it is sent in a header.
type Code string

// The error codes; the list is closed.
const (
	Invalid     Code = "invalid"     // the input can never be accepted as it is
	NotFound    Code = "not_found"   // no such entity
	Conflict    Code = "conflict"    // another writer was first: read and decide again
	Fenced      Code = "fenced"      // from an old generation or incarnation
	Exhausted   Code = "exhausted"   // a budget or a capacity is used up
	Unavailable Code = "unavailable" // try again later
	Cancelled   Code = "cancelled"   // the caller gave up
	TooLarge    Code = "too_large"   // the payload is over the limit
	Newer       Code = "newer"       // written by a newer version than this one
	Internal    Code = "internal"    // an error in Regroup itself
)

// Error is an error with a code.
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

// Errorf returns an error with a code; its %w operands become the cause.
func Errorf(code Code, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	cause := errors.Unwrap(err)
	if _, several := err.(interface{ Unwrap() []error }); several {
		cause = err
	}
	return &Error{Code: code, Text: err.Error(), Err: cause}
}

// Of returns the code of err: Cancelled for the end of a context, Internal for any other
// foreign error, empty for nil.
func Of(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Cancelled
	}
	return Internal
}

// ValidationError is a refusal with all reasons. It counts as an *Error with code Invalid.
type ValidationError struct {
	Fields []spec.FieldError
	Cause  error // ErrUnknownType, or nil
}

// Error returns the field errors in one line.
func (e *ValidationError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.String()
	}
	return strings.Join(parts, "; ")
}

// Unwrap returns the cause.
func (e *ValidationError) Unwrap() error { return e.Cause }

// Is makes errors.Is(err, ErrInvalid) true.
func (e *ValidationError) Is(target error) bool { return target == ErrInvalid }

// As makes Of see an *Error with code Invalid.
func (e *ValidationError) As(target any) bool {
	t, ok := target.(**Error)
	if ok {
		*t = &Error{Code: Invalid, Text: e.Error(), Err: e.Cause}
	}
	return ok
}

// Refuse returns an error with the field errors, or nil if there are none.
func Refuse(findings []spec.FieldError) error {
	if len(findings) == 0 {
		return nil
	}
	return &ValidationError{Fields: findings}
}

// RefuseAs is Refuse with another code; empty = Invalid.
func RefuseAs(c Code, findings []spec.FieldError) error {
	err := Refuse(findings)
	if err == nil || c == "" || c == Invalid {
		return err
	}
	return Errorf(c, "%w", err)
}

// FieldErrorsOf returns the field errors in err; an error without any becomes one with its text.
func FieldErrorsOf(err error) []spec.FieldError {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*ValidationError](err); ok {
		return f.Fields
	}
	return []spec.FieldError{{Message: err.Error()}}
}

// BoundedFieldErrors is FieldErrorsOf for a fact: at most limits.FieldErrors of them, with
// shortened texts; a last one counts the others.
func BoundedFieldErrors(err error) []spec.FieldError {
	all := FieldErrorsOf(err)
	more := len(all) - limits.FieldErrors.Max
	if more > 0 {
		all = all[:limits.FieldErrors.Max]
	}
	out := make([]spec.FieldError, 0, len(all)+1)
	for _, f := range all {
		f.Path, f.Message, f.Hint = limits.Shorten(f.Path, limits.Word.Max), limits.Shorten(f.Message, limits.Text.Max), limits.Shorten(f.Hint, limits.Word.Max)
		out = append(out, f)
	}
	if more > 0 {
		out = append(out, spec.FieldError{Message: fmt.Sprintf("and %d more (%s)", more, limits.FieldErrors)})
	}
	return out
}
