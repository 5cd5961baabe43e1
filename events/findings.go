package events

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnknownType marks an event whose type is not in the catalogue: a newer client, or not meant for us.
var ErrUnknownType = errors.New("event type is not in the catalogue")

// FindingsError is a "no" with every reason at once. It counts as an *Error with code Invalid.
type FindingsError struct {
	Findings []Finding
	Cause    error // ErrUnknownType, or nil
}

// Error puts the findings in one line.
func (e *FindingsError) Error() string {
	parts := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		parts[i] = f.String()
	}
	return strings.Join(parts, "; ")
}

// Unwrap returns the cause.
func (e *FindingsError) Unwrap() error { return e.Cause }

// Is makes errors.Is(err, ErrInvalid) true.
func (e *FindingsError) Is(target error) bool { return target == ErrInvalid }

// As makes CodeOf see an *Error with code Invalid.
func (e *FindingsError) As(target any) bool {
	t, ok := target.(**Error)
	if ok {
		*t = &Error{Code: Invalid, Text: e.Error(), Err: e.Cause}
	}
	return ok
}

// String prints the finding as "workers.min: must be at least 1 (did you mean ...)".
func (f Finding) String() string {
	s := f.Message
	if f.Path != "" {
		s = f.Path + ": " + s
	}
	if f.Hint != "" {
		s += " (" + f.Hint + ")"
	}
	return s
}

// Refuse makes the error of findings, nil when there are none.
func Refuse(findings []Finding) error {
	if len(findings) == 0 {
		return nil
	}
	return &FindingsError{Findings: findings}
}

// RefuseAs is Refuse with another code than Invalid; empty = Invalid.
func RefuseAs(c Code, findings []Finding) error {
	err := Refuse(findings)
	if err == nil || c == "" || c == Invalid {
		return err
	}
	return Errorf(c, "%w", err)
}

// FindingsOf returns the findings in err; an error without any becomes one finding with its text.
func FindingsOf(err error) []Finding {
	if err == nil {
		return nil
	}
	var f *FindingsError
	if errors.As(err, &f) {
		return f.Findings
	}
	return []Finding{{Message: err.Error()}}
}

// ReportOf is FindingsOf for a fact: at most LimitFindings of them, with shortened texts; a last one counts the others.
func ReportOf(err error) []Finding {
	all := FindingsOf(err)
	more := len(all) - LimitFindings.Most
	if more > 0 {
		all = all[:LimitFindings.Most]
	}
	out := make([]Finding, 0, len(all)+1)
	for _, f := range all {
		f.Path, f.Message, f.Hint = Shorten(f.Path, LimitWord.Most), Shorten(f.Message, LimitText.Most), Shorten(f.Hint, LimitWord.Most)
		out = append(out, f)
	}
	if more > 0 {
		out = append(out, Finding{Message: fmt.Sprintf("and %d more (%s)", more, LimitFindings)})
	}
	return out
}
