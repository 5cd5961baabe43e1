package capture

import (
	"slices"
	"strings"
)

// concealed replaces the value of a secret.
const concealed = "****"

// Mask conceals the values of secrets in text. A nil Mask conceals nothing.
type Mask struct {
	replace *strings.Replacer
	values  []string // the longest first
}

// minLine is the least length of a line of a value with several lines that is concealed by itself.
const minLine = 8

// NewMask returns nil if there is nothing to conceal. Output is split into lines, so the lines of a
// value are concealed too.
func NewMask(values map[string]string) *Mask {
	var all []string
	for _, v := range values {
		all = append(all, v)
		if lines := strings.FieldsFunc(v, func(r rune) bool { return r == '\n' || r == '\r' }); len(lines) > 1 {
			all = append(all, slices.DeleteFunc(lines, func(l string) bool { return len(strings.TrimSpace(l)) < minLine })...)
		}
	}
	if len(all) == 0 {
		return nil
	}
	// Of values that begin alike, the longer one is tried first.
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, v := range all {
		pairs = append(pairs, v, concealed)
	}
	return &Mask{strings.NewReplacer(pairs...), all}
}

// Text returns a text with the values replaced.
func (m *Mask) Text(s string) string {
	if m == nil {
		return s
	}
	return m.replace.Replace(s)
}

// margin is how much of an incomplete line must be there beyond a cut, so that no value is cut.
func (m *Mask) margin() int {
	if m == nil {
		return 0
	}
	return len(m.values[0])
}

// begun is text for the beginning of a line: without an end that may be the beginning of a value.
func (m *Mask) begun(s string) string {
	if m == nil {
		return s
	}
	for at := 0; at < len(s); {
		if slices.ContainsFunc(m.values, func(v string) bool { return len(v) > len(s)-at && strings.HasPrefix(v, s[at:]) }) {
			return m.Text(s[:at])
		}
		step := 1
		if i := slices.IndexFunc(m.values, func(v string) bool { return strings.HasPrefix(s[at:], v) }); i >= 0 {
			step = len(m.values[i]) // what is concealed is the beginning of nothing
		}
		at += step
	}
	return m.Text(s)
}
