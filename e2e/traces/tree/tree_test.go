package tree

import (
	"strings"
	"testing"
	"time"
)

// TestFaults checks that each fault is found in a trace that is good otherwise.
func TestFaults(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1_000_000 + ms)) }
	span := func(id, parent string, from, to int) Span {
		return Span{Ref: Ref{"t", id}, Parent: parent, Service: "agent", Name: id, Start: at(from), End: at(to)}
	}
	for _, c := range []struct {
		name, want string // want = "" means no fault
		change     func(s []Span) []Span
	}{
		{"good", "", func(s []Span) []Span { return s }},
		{"a child outlives its parent", "", func(s []Span) []Span { s[1].End = at(5000); return s }},
		{"clocks differ a little", "", func(s []Span) []Span { s[1].Start = at(-5); return s }},
		{"two roots", "2 roots", func(s []Span) []Span { s[2].Parent = ""; return s }},
		{"no root", "0 roots", func(s []Span) []Span { return s[1:] }},
		{"an orphan", "not in the trace", func(s []Span) []Span { s[2].Parent = "gone"; return s }},
		{"of another trace", "is in the trace other", func(s []Span) []Span { s[1].Trace = "other"; return s }},
		{"an id twice", "the id of another", func(s []Span) []Span { return append(s, s[1]) }},
		{"backwards", "ends before", func(s []Span) []Span { s[1].End = at(1); return s }},
		{"before its parent", "begins 400ms before", func(s []Span) []Span { s[1].Start = at(-400); return s }},
		{"a circle", "circle", func(s []Span) []Span { s[1].Parent, s[2].Parent = "c", "b"; return s }},
	} {
		faults := Faults("t", c.change([]Span{span("a", "", 0, 100), span("b", "a", 10, 20), span("c", "b", 15, 20)}))
		if got := strings.Join(faults, "; "); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
