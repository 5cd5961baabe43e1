package spec

import (
	"fmt"
	"unicode/utf8"

	"github.com/regroup-io/regroup/events/limits"
)

// FieldError is an error of one field of an input.
type FieldError struct {
	Path    string `json:"path"`    // of the field: workers.min
	Message string `json:"message"` // the error and its fix
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Hint    string `json:"hint,omitempty"` // did you mean
}

// String returns the error as "workers.min: must be at least 1 (did you mean ...)".
func (f FieldError) String() string {
	s := f.Message
	if f.Path != "" {
		s = f.Path + ": " + s
	}
	if f.Hint != "" {
		s += " (" + f.Hint + ")"
	}
	return s
}

// CheckLimit returns an error if a value at path of size have exceeds the limit, or nil.
func CheckLimit(path string, have int, l limits.Limit) *FieldError {
	if have <= l.Max {
		return nil
	}
	return &FieldError{Path: path, Message: fmt.Sprintf("has %d %s, at most %d are allowed (limit %s)", have, l.Unit, l.Max, l.Name)}
}

// MaxLabel is the maximum length of an RFC 1123 label.
const MaxLabel = 63

// CheckLabel returns an error if s is not an RFC 1123 label. Names of jobs and nodes are labels so
// that each is one token of a subject and one key of a bucket. what names the field in the message.
func CheckLabel(what, s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%s is empty: give 1 to %d of a-z, 0-9 and '-'", what, MaxLabel)
	case utf8.RuneCountInString(s) > MaxLabel:
		return fmt.Errorf("%s %q has %d characters, at most %d are allowed", what, limits.Shorten(s, limits.Word.Max), utf8.RuneCountInString(s), MaxLabel)
	case s[0] == '-' || s[len(s)-1] == '-':
		return fmt.Errorf("%s %q begins or ends with '-'", what, s)
	}
	for _, c := range s {
		if c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return fmt.Errorf("%s %q contains %q: only a-z, 0-9 and '-' are allowed", what, s, string(c))
		}
	}
	return nil
}
