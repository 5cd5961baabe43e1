package ident

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/internal/english"
)

// Places is an ordered list of places. In JSON consecutive ones of one node are one text, the
// node's name, a slash and its slots: ["node-a/0-7", "node-b/0,2,5-7"]. A list of {"node", "slot"}
// is accepted too.
type Places []Place

// MarshalJSON encodes the short form.
func (p Places) MarshalJSON() ([]byte, error) {
	if p == nil {
		return []byte("null"), nil
	}
	runs := []string{}
	for i, j := 0, 0; i < len(p); i = j {
		for j = i + 1; j < len(p) && p[j].Node == p[i].Node; j++ {
		}
		runs = append(runs, runText(p[i:j]))
	}
	return json.Marshal(runs)
}

// UnmarshalJSON decodes both forms.
func (p *Places) UnmarshalJSON(b []byte) (err error) {
	*p, err = ParsePlaces(b, limits.Workers.Max)
	return err
}

// ParsePlaces decodes both forms, at most so many places; Invalid if it cannot.
func ParsePlaces(b []byte, most int) (out Places, err error) {
	var runs []string
	if json.Unmarshal(b, &runs) != nil {
		if json.Unmarshal(b, (*[]Place)(&out)) != nil {
			return nil, errcode.Errorf(errcode.Invalid, `places must be a list of texts like "node-a/0-7"`)
		}
		return out, tooManyPlaces(len(out), most)
	}
	if runs != nil {
		out = make(Places, 0, len(runs))
	}
	for _, text := range runs {
		if out, err = parseRun(out, text, most); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// runText returns the name of a node and its slots.
func runText(run []Place) string {
	return string(run[0].Node) + "/" + english.Ranges(len(run), func(i int) int { return int(run[i].Slot) })
}

// parseRun appends the places of one text. A range may stand for many more places than it has
// characters, so it is checked before it is expanded.
func parseRun(out Places, text string, most int) (Places, error) {
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
			return out, errcode.Errorf(errcode.Invalid, "%q goes to slot %d (%s)", limits.Shorten(text, limits.Word.Max), last, limits.Slots)
		case len(out)+last-first+1 > most:
			return out, tooManyPlaces(len(out)+last-first+1, most)
		}
		for s := first; s <= last; s++ {
			out = append(out, Place{Node: node, Slot: Slot(s)})
		}
	}
	return out, nil
}

func noPlace(text string) error {
	return errcode.Errorf(errcode.Invalid, `%q is no place: write node-a/0 or node-a/0-3,7`, limits.Shorten(text, limits.Word.Max))
}

// tooManyPlaces returns an error if there are more than so many.
func tooManyPlaces(n, most int) error {
	if n > most {
		return errcode.Errorf(errcode.Invalid, "%s or more (%s)", english.Plural(n, "place"), limits.Workers)
	}
	return nil
}
