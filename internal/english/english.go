// Package english formats numbers of things in messages for people.
package english

import (
	"fmt"
	"strconv"
	"strings"
)

// Plural formats a number of things: 1 node, 2 nodes, 0 processes, 3 entries. The noun is one of
// those whose plural is regular, or epoch, whose ch is a k.
func Plural[N int | int64 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %s", n, plural(noun))
}

// Clause formats a number of things that do something, of a regular verb: 1 worker fits, 2 workers
// fit.
func Clause[N int | int64 | uint64](n N, noun, verb string) string {
	if n == 1 {
		verb = plural(verb)
	}
	return Plural(n, noun) + " " + verb
}

func plural(noun string) string {
	last := noun[len(noun)-1:]
	switch stem := strings.TrimSuffix(noun, "y"); {
	case stem != noun && !strings.ContainsAny(stem[len(stem)-1:], "aeiou"):
		return stem + "ies"
	case strings.HasSuffix(noun, "epoch"):
		return noun + "s"
	case strings.ContainsAny(last, "sx") || strings.HasSuffix(noun, "ch") || strings.HasSuffix(noun, "sh"):
		return noun + "es"
	}
	return noun + "s"
}

// Between formats a range of things: 1 node, 4 nodes, 2 to 4 nodes.
func Between(least, most int, noun string) string {
	if least == most {
		return Plural(most, noun)
	}
	return strconv.Itoa(least) + " to " + Plural(most, noun)
}

// Ranges formats n numbers, of which the i-th is at(i), in the order that they have: those that
// follow on each other are a range, 0-3,6.
func Ranges(n int, at func(i int) int) string {
	var b []byte
	for i := 0; i < n; {
		j := i
		for j+1 < n && at(j+1) == at(j)+1 {
			j++
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(at(i)), 10)
		if j > i {
			b = strconv.AppendInt(append(b, '-'), int64(at(j)), 10)
		}
		i = j + 1
	}
	return string(b)
}
