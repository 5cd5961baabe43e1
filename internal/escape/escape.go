// Package escape escapes untrusted text for a terminal: control sequences, other control
// characters, and marks that change the writing direction are written as in Go and YAML strings.
// Letters, punctuation and spaces of all scripts are unchanged.
package escape

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/regroup-io/regroup/events/output"
)

// shown reports whether a character may reach a terminal. Some scripts need the two joiners.
func shown(r rune) bool {
	return unicode.IsGraphic(r) || r == '\t' || r == '\n' || r == '\u200c' || r == '\u200d'
}

// Text escapes characters that must not reach a terminal. Line feeds and tabs are unchanged.
func Text(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case shown(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
		i += n
	}
	return b.String()
}

// Output is Text for a line of a worker's output. Its colours are kept, and end with it, or they
// are removed.
func Output(s string, colours bool) string {
	const escape = "\x1b["
	if !strings.Contains(s, escape) {
		return Text(s)
	}
	var b strings.Builder
	coloured := false
	for {
		i := strings.Index(s, escape)
		if i < 0 {
			break
		}
		b.WriteString(Text(s[:i]))
		n, resets := output.Colour(s[i:])
		switch {
		case n == 0:
			n = 1
			b.WriteString(Text(s[i : i+1]))
		case colours:
			b.WriteString(s[i : i+n])
			coloured = !resets
		}
		s = s[i+n:]
	}
	b.WriteString(Text(s))
	if coloured {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}

func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' && c != '\n' || c >= 0x7f {
			return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !shown(r) }) < 0
		}
	}
	return true
}

// Line is Text for a single line.
func Line(s string) string {
	if !strings.ContainsAny(s, "\n\t") {
		return Text(s)
	}
	return Text(strings.NewReplacer("\n", `\n`, "\t", " ").Replace(s))
}

// JSON escapes in a JSON text the control characters that JSON permits. Its value is unchanged.
func JSON(b []byte) []byte {
	s := string(b)
	if plain(s) {
		return b
	}
	var out strings.Builder
	for _, r := range s {
		if shown(r) || r == '\r' {
			out.WriteRune(r)
			continue
		}
		for _, u := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&out, `\u%04x`, u)
		}
	}
	return []byte(out.String())
}

// All applies Text to every string reachable from v, a pointer, in place.
func All(v any) { walk(reflect.ValueOf(v)) }

func walk(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			walk(v.Elem())
		}
	case reflect.Interface:
		if v.IsNil() {
			return
		}
		// The value in an interface cannot be changed in place.
		c := reflect.New(v.Elem().Type())
		c.Elem().Set(v.Elem())
		walk(c)
		v.Set(c.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				walk(v.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		if k := v.Type().Elem().Kind(); k >= reflect.Bool && k <= reflect.Complex128 {
			return
		}
		for i := range v.Len() {
			walk(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			c := reflect.New(v.Type().Elem()).Elem()
			c.Set(v.MapIndex(key))
			walk(c)
			to := key
			if key.Kind() == reflect.String && !plain(key.String()) {
				v.SetMapIndex(key, reflect.Value{})
				to = reflect.New(key.Type()).Elem()
				to.SetString(Text(key.String()))
			}
			v.SetMapIndex(to, c)
		}
	case reflect.String:
		if s := v.String(); !plain(s) {
			v.SetString(Text(s))
		}
	}
}

// Shell writes the words of a command as one would type them.
func Shell(words []string) string {
	typed := make([]string, len(words))
	for i, w := range words {
		if typed[i] = Line(w); w == "" || strings.ContainsFunc(w, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./=:,@%+", r)
		}) {
			typed[i] = "'" + strings.ReplaceAll(typed[i], "'", `'\''`) + "'"
		}
	}
	return strings.Join(typed, " ")
}
