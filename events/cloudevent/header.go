package cloudevent

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/regroup-io/regroup/events/spec"
)

// Header names of the CloudEvents NATS binding, which ignores their case. NATS does not.
const (
	headerPrefix      = "ce-"
	headerContentType = "Content-Type"
	headerEncoding    = "Content-Encoding"
	mediaEvents       = "application/cloudevents"
	mediaStructured   = mediaEvents + "+json"
	mediaJSON         = "application/json"
)

// header returns the first value of a name in any case; an exact match takes precedence, so that
// the result is deterministic.
func header(h map[string][]string, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	for _, k := range slices.Sorted(maps.Keys(h)) {
		if strings.EqualFold(k, name) && len(h[k]) > 0 {
			return h[k][0]
		}
	}
	return ""
}

// mustPercent reports whether the binding forbids a byte in a header value.
func mustPercent(c byte) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == '%' }

func percentEncode(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; mustPercent(c) {
			const digits = "0123456789ABCDEF"
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// percentDecode decodes a header value: quoted strings lose their quotes, percent triplets are
// decoded once. wrong is "" or the error.
func percentDecode(s string) (value, wrong string) {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = unquote(s[1 : len(s)-1])
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+3 > len(s) {
			return "", "ends within a percent triplet"
		}
		v, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", "has the percent sign before " + strconv.Quote(s[i+1:i+3]) + ": write %25 for a percent sign"
		}
		b.WriteByte(byte(v))
		i += 2
	}
	value = b.String()
	return value, badText(value)
}

// unquote removes the backslashes of a quoted string (RFC 9110, 5.6.4).
func unquote(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// badText returns why s cannot be an attribute value (CloudEvents 1.0, type String), or "".
func badText(s string) string {
	if !utf8.ValidString(s) {
		return "is not valid UTF-8"
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return "holds a control character"
	}
	return ""
}

// attributes collects the attributes and extensions of a binary-mode message.
func attributes(h map[string][]string) (map[string]string, []spec.FieldError) {
	out := map[string]string{}
	var bad []spec.FieldError
	for _, k := range slices.Sorted(maps.Keys(h)) {
		if len(k) <= len(headerPrefix) || !strings.EqualFold(k[:len(headerPrefix)], headerPrefix) || len(h[k]) == 0 {
			continue
		}
		name := strings.ToLower(k[len(headerPrefix):])
		v, wrong := percentDecode(h[k][0])
		if wrong != "" {
			bad = append(bad, spec.FieldError{Path: name, Message: wrong})
			continue
		}
		if old, twice := out[name]; twice && old != v {
			bad = append(bad, spec.FieldError{Path: name, Message: "is given twice with different values"})
			continue
		}
		out[name] = v
	}
	return out, bad
}
