package spec

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/internal/golden"
)

func TestJobFilePage(t *testing.T) { golden.Compare(t, "../../docs/jobfile.md", Markdown()) }

// TestEveryFieldOfTheJobFileIsInTheReference, and nothing else.
func TestEveryFieldOfTheJobFileIsInTheReference(t *testing.T) {
	var fields []string
	specTree(reflect.ValueOf(Job{Rendezvous: &Rendezvous{}}), "", func(path string, _ reflect.Value) { fields = append(fields, path) })
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

func TestParseSpecNamesFieldsNotImplementedYet(t *testing.T) {
	for _, field := range laterFields {
		outer, inner, nested := strings.Cut(field, ".")
		doc := map[string]any{"name": "a", "command": []string{"x"}, "workers": map[string]any{"min": 1, "max": 1}}
		if nested {
			m, _ := doc[outer].(map[string]any)
			if m == nil {
				m = map[string]any{}
			}
			m[inner] = 1
			doc[outer] = m
		} else {
			doc[outer] = map[string]any{"x": 1}
		}
		b, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if _, bad := Parse(b); len(bad) != 1 || bad[0].Path != field || !strings.Contains(bad[0].Message, "not built yet in this version") {
			t.Errorf("%s: %v", b, bad)
		}
	}
}
