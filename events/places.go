package events

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/events/limits"
)

// Places is a list of places in their order. In JSON those of one node that follow each other are one text, the node's name,
// a slash and its slots: ["node-a/0-7", "node-b/0,2,5-7"]. A list of {"node", "slot"} is read too.
type Places []Place

// MarshalJSON writes the short form.
func (p Places) MarshalJSON() ([]byte, error) {
	if p == nil {
		return []byte("null"), nil
	}
	b := append(make([]byte, 0, 2+len(p)*4), '[')
	for i := 0; i < len(p); {
		if i > 0 {
			b = append(b, ',')
		}
		n := runOf(p[i:])
		b = append(b, '"')
		b = appendRun(b, p[i:i+n])
		b = append(b, '"')
		i += n
	}
	return append(b, ']'), nil
}

// UnmarshalJSON reads both forms.
func (p *Places) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*p = nil
		return nil
	}
	out := Places{}
	var wrong error
	if !scan(b, func(s *scanner) {
		s.list(func() {
			if s.peek() == '{' {
				var x Place
				s.value(&x)
				out = append(out, x)
				return
			}
			text := s.text()
			if out, wrong = parseRun(out, text); wrong != nil {
				s.fail()
			}
		})
	}) && wrong == nil {
		wrong = Errorf(Invalid, `places must be a list of texts like "node-a/0-7"`)
	}
	if wrong == nil && len(out) > limits.Workers.Max {
		wrong = tooManyPlaces(len(out))
	}
	if wrong != nil {
		return wrong
	}
	*p = out
	return nil
}

// runOf counts the places at the beginning that are on one node. A name that would not read back is alone in its run.
func runOf(p Places) int {
	n := 1
	for n < len(p) && p[n].Node == p[0].Node {
		n++
	}
	return n
}

func appendRun(b []byte, run Places) []byte {
	quoted, _ := json.Marshal(string(run[0].Node)) // no string fails
	b = append(append(b, quoted[1:len(quoted)-1]...), '/')
	for i := 0; i < len(run); {
		j := i
		for j+1 < len(run) && run[j+1].Slot == run[j].Slot+1 {
			j++
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(run[i].Slot), 10)
		if j > i {
			b = strconv.AppendInt(append(b, '-'), int64(run[j].Slot), 10)
		}
		i = j + 1
	}
	return b
}

// parseRun appends the places of one text. A range may stand for many more places than it has characters, so it is bounded before it
// is written out.
func parseRun(out Places, text string) (Places, error) {
	at := strings.LastIndexByte(text, '/')
	if at < 0 {
		return out, noPlace(text)
	}
	node := NodeID(text[:at])
	for part := range strings.SplitSeq(text[at+1:], ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && isRange {
			last, err = strconv.Atoi(to)
		}
		switch {
		case err != nil || last < first:
			return out, noPlace(text)
		case last >= limits.Slots.Max:
			return out, Errorf(Invalid, "%q goes to slot %d (%s)", limits.Shorten(text, limits.Word.Max), last, limits.Slots)
		case len(out)+last-first+1 > limits.Workers.Max:
			return out, tooManyPlaces(len(out) + last - first + 1)
		}
		for s := first; s <= last; s++ {
			out = append(out, Place{Node: node, Slot: Slot(s)})
		}
	}
	return out, nil
}

func noPlace(text string) error {
	return Errorf(Invalid, `%q is no place: write node-a/0 or node-a/0-3,7`, limits.Shorten(text, limits.Word.Max))
}

func tooManyPlaces(n int) error {
	return Errorf(Invalid, "has %d places or more (%s)", n, limits.Workers)
}
