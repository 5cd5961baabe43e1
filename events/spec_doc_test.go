package events

import (
	"reflect"
	"slices"
	"testing"

	"github.com/regroup-io/regroup/internal/golden"
)

func TestJobFilePage(t *testing.T) { golden.Compare(t, "../docs/jobfile.md", SpecMarkdown()) }

// TestEveryFieldOfTheJobFileIsInTheReference: and nothing else.
func TestEveryFieldOfTheJobFileIsInTheReference(t *testing.T) {
	var fields []string
	specTree(reflect.ValueOf(Spec{Rendezvous: &Rendezvous{}}), "", func(path string, _ reflect.Value) { fields = append(fields, path) })
	var documented []string
	for _, f := range specFields {
		if documented = append(documented, f.path); f.what == "" {
			t.Errorf("no word about %s", f.path)
		}
	}
	slices.Sort(fields)
	slices.Sort(documented)
	if !slices.Equal(fields, documented) {
		t.Errorf("the specification has %v\nthe reference has     %v", fields, documented)
	}
}
