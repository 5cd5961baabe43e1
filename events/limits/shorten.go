package limits

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// Shorten returns s with at most so many bytes. It removes the middle, because errors name the
// subject at the beginning and the reason at the end; a mark gives the number of bytes removed.
func Shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	// The number in the mark has at most as many digits as the length.
	room := most - len(leftOut(len(s)))
	if room < 0 {
		return s[:boundary(s, most)]
	}
	head := boundary(s, room-room/2)
	tail := len(s) - room/2
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return s[:head] + leftOut(tail-head) + s[tail:]
}

func leftOut(n int) string { return fmt.Sprintf(" … [%d bytes left out] … ", n) }

// boundary returns the end of the last whole character within the first n bytes.
func boundary(s string, n int) int {
	for n > 0 && n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	return n
}

// ShortenLines limits lines of output: each by Line, together by Lines. The newest stay.
func ShortenLines(lines []string) []string {
	out := make([]string, 0, len(lines))
	size := 0
	for _, l := range lines {
		l = Shorten(l, Line.Max)
		out = append(out, l)
		size += len(l) + 1
	}
	if size <= Lines.Max {
		return out
	}
	mark := func(n int) string { return fmt.Sprintf("… [%d lines left out]", n) }
	size += len(mark(len(lines))) + 1
	dropped := 0
	for size > Lines.Max && dropped < len(out) {
		size -= len(out[dropped]) + 1
		dropped++
	}
	return slices.Insert(out[dropped:], 0, mark(dropped))
}
