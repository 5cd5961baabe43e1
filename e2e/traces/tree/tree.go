// Package tree checks that the spans of a trace are one tree: a single root, and the parent of each
// span in the same trace, before it.
package tree

import (
	"fmt"
	"slices"
	"time"
)

// Ref names a span.
type Ref struct{ Trace, ID string }

// Span is one span as a collector has stored it.
type Span struct {
	Ref
	Parent     string // id; empty = a root
	Links      []Ref
	Service    string
	Name       string
	Start, End time.Time
	Attributes map[string]string
	Error      string // description of its status, if that is an error
}

// skew is by how much a span may begin before its parent, or end after it: a root begins at a time
// that is computed from durations on three clocks, without the time that facts were on their way.
const skew = 250 * time.Millisecond

// Faults returns what is wrong with a trace. Other traces that its spans lead to are not needed.
func Faults(trace string, spans []Span) (faults []string) {
	say := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	byID := map[string]Span{}
	var roots []string
	for _, s := range spans {
		if _, twice := byID[s.ID]; twice {
			say("%s has the id of another span", s)
		}
		byID[s.ID] = s
		if s.Parent == "" {
			roots = append(roots, s.Name)
		}
		if s.Trace != trace {
			say("%s is in the trace %s", s, s.Trace)
		}
		if s.End.Before(s.Start) {
			say("%s ends before it begins", s)
		}
	}
	if len(roots) != 1 {
		say("it has %d roots, not one: %q", len(roots), roots)
	}
	for _, s := range spans {
		if s.Parent == "" {
			continue
		}
		p, ok := byID[s.Parent]
		switch {
		case !ok:
			say("%s has the parent %s, which is not in the trace", s, s.Parent)
		case s.Start.Before(p.Start.Add(-skew)):
			say("%s begins %s before its parent %s", s, p.Start.Sub(s.Start), p)
		case !leadsToRoot(byID, s):
			say("%s is in a circle of parents", s)
		}
	}
	return faults
}

func leadsToRoot(byID map[string]Span, s Span) bool {
	for range len(byID) {
		if s.Parent == "" {
			return true
		}
		p, ok := byID[s.Parent]
		if !ok {
			return true // said already
		}
		s = p
	}
	return false
}

// Within reports whether a span begins and ends within another one.
func Within(s, outer Span) bool {
	return !s.Start.Before(outer.Start.Add(-skew)) && !s.End.After(outer.End.Add(skew))
}

// Before reports whether a span begins before another one does.
func Before(a, b Span) bool { return !a.Start.After(b.Start.Add(skew)) }

// String returns the service and the name of a span, with its rank.
func (s Span) String() string {
	if rank, ok := s.Attributes["regroup.rank"]; ok {
		return fmt.Sprintf("%s %q of rank %s", s.Service, s.Name, rank)
	}
	return fmt.Sprintf("%s %q", s.Service, s.Name)
}

// Named returns the spans of a service with a name, by their start.
func Named(spans []Span, service, name string) (found []Span) {
	for _, s := range spans {
		if s.Service == service && s.Name == name {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return found
}
