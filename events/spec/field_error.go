package spec

import (
	"fmt"
	"strings"
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

// Nearest returns the known word most similar to word, or "" if none is similar enough: within one
// edit, plus one for every three characters. A word of which this is the beginning, from three
// characters on, is nearer than any other: the shortest of them.
func Nearest(word string, known []string) string {
	if len(word) > 80 { // too long for a typing error; the distance costs len²
		return ""
	}
	best, limit := "", 1+len(word)/3
	if len(word) >= leastBeginning {
		for _, k := range known {
			if strings.HasPrefix(k, word) && (best == "" || len(k) < len(best)) {
				best = k
			}
		}
		if best != "" {
			return best
		}
	}
	for _, k := range known {
		if d := distance(word, k); d <= limit && (best == "" || d < limit) {
			best, limit = k, d
		}
	}
	return best
}

// leastBeginning is how much of a word tells which one is meant.
const leastBeginning = 3

// DidYouMean returns `did you mean "max"?` for the nearest known word, or "" if there is none.
func DidYouMean(word string, known []string) string {
	if w := Nearest(word, known); w != "" {
		return fmt.Sprintf("did you mean %q?", w)
	}
	return ""
}

// distance counts the single-byte edits between two words (Levenshtein 1966).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
