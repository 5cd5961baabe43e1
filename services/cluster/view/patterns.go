package view

import (
	"cmp"
	"path"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
)

// Matches reports whether a pattern stands for a type: worker.exited, incident.*, or the type
// itself.
func Matches(pattern string, t events.Type) bool {
	ok, err := path.Match(pattern, short(t))
	return pattern == string(t) || (err == nil && ok)
}

// short is a type as patterns have it: worker.exited.
func short(t events.Type) string { return string(t.Family()) + "." + t.Kind() }

// CheckPattern returns what is wrong with a pattern of the types of facts; nil if it stands for one
// at least. Field is the path of the field or the parameter.
func CheckPattern(field, pattern string) *spec.FieldError {
	quoted := strconv.Quote(limits.Shorten(pattern, limits.Word.Max))
	if _, err := path.Match(pattern, ""); err != nil || pattern == "" || len(pattern) > limits.Word.Max {
		return &spec.FieldError{Path: field, Message: quoted + " is no pattern: write worker.exited or incident.*"}
	}
	var known, families []string
	for _, e := range events.Catalog() {
		if e.Class != events.ClassFact {
			continue
		}
		if Matches(pattern, e.Type) {
			return nil
		}
		family := string(e.Type.Family())
		if n := len(families); n == 0 || families[n-1] != family {
			families = append(families, family)
			known = append(known, family+".*")
		}
		known = append(known, short(e.Type), string(e.Type))
	}
	last := len(families) - 1
	return &spec.FieldError{
		Path: field, Message: quoted + " is the type of no fact",
		Hint: cmp.Or(spec.DidYouMean(pattern, known), "they begin with "+strings.Join(families[:last], ", ")+" or "+families[last]),
	}
}

// TypePatterns are the families of facts as patterns, and the types of all facts.
func TypePatterns() (all []string) {
	family := ""
	for _, e := range events.Catalog() {
		if e.Class != events.ClassFact {
			continue
		}
		if f := string(e.Type.Family()); f != family {
			family = f
			all = append(all, f+".*")
		}
		all = append(all, short(e.Type))
	}
	return all
}
