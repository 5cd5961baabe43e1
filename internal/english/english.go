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
