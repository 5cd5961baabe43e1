package output

import "strings"

// escape begins a sequence of ECMA-48 that can be a colour.
const escape = "\x1b["

// mostParameters bounds the parameters of a colour, in bytes. The longest one that is in use,
// foreground and background of 24 bits in bold, has 40.
const mostParameters = 64

// Colour returns the length of the sequence at the beginning of a text that sets colours and styles
// (SGR), and whether it ends them all; 0 without one. Sequences with other characters than
// digits, semicolons and colons do other things to terminals, also where they end with m.
func Colour(text string) (length int, resets bool) {
	rest, ok := strings.CutPrefix(text, escape)
	if !ok {
		return 0, false
	}
	resets = true
	for i := range min(len(rest), mostParameters+1) {
		switch c := rest[i]; {
		case c == 'm':
			return len(escape) + i + 1, resets
		case c >= '1' && c <= '9', c == ':', c == ';':
			resets = false
		case c != '0':
			return 0, false
		}
	}
	return 0, false
}

// Plain returns a text without its colours.
func Plain(text string) string {
	i := strings.Index(text, escape)
	if i < 0 {
		return text
	}
	var b strings.Builder
	for ; i >= 0; i = strings.Index(text, escape) {
		b.WriteString(text[:i])
		n, _ := Colour(text[i:])
		if text = text[i+n:]; n == 0 {
			b.WriteString(escape)
			text = text[len(escape):]
		}
	}
	b.WriteString(text)
	return b.String()
}
