package cloudevent

import (
	"errors"
	"maps"
	"net/url"
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
	value, err := url.PathUnescape(s)
	if bad, ok := errors.AsType[url.EscapeError](err); ok {
		return "", "has " + strconv.Quote(string(bad)) + ": write %25 for a percent sign"
	}
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
