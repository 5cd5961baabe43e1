package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/internal/golden"
)

func TestEnvironmentPage(t *testing.T) {
	page, err := environmentPage()
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "../../docs/environment.md", page)
}

// TestEveryVariableIsInTheReference checks each name in the sources of the binary, the SDK and the
// Python package.
func TestEveryVariableIsInTheReference(t *testing.T) {
	page, err := environmentPage()
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`\bREGROUP_[A-Z0-9_]*[A-Z0-9]\b`)
	documented := name.FindAllString(page, -1)
	others := []string{
		"REGROUP_CMD", "REGROUP_EVT", "REGROUP_LAUNCH", "REGROUP_LOG", "REGROUP_SPAN", // streams
		"REGROUP_H", "REGROUP_PROCESS_H", // guards of C headers
		"REGROUP_FAKE_FOLDER", "REGROUP_FAKE_STRICT", // of the fake NCCL library in tests
	}
	read := map[string]bool{}
	for _, root := range []string{"agent", "cmd", "collective", "elastic", "events", "jetstream", "services", "python/regroup"} {
		err := filepath.WalkDir(filepath.Join("..", "..", root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{".go", ".py", ".h", ".c"}, filepath.Ext(path)) {
				return err
			}
			text, err := os.ReadFile(path)
			for _, v := range name.FindAllString(string(text), -1) {
				if read[v] = true; !slices.Contains(documented, v) && !slices.Contains(others, v) {
					t.Errorf("%s has %s, which docs/environment.md does not: add it to a configuration (with desc) or to events/spec/environment.go", path, v)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(read) < 40 {
		t.Errorf("only %d variables were found in the sources", len(read))
	}
	for _, v := range others {
		if !read[v] {
			t.Errorf("%s is nowhere any more", v)
		}
	}
}

// TestVariablesAreExplained checks that every variable has a description.
func TestVariablesAreExplained(t *testing.T) {
	page, err := environmentPage()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "| `") && strings.HasSuffix(line, "|  |\n") {
			t.Errorf("no word about %s", line)
		}
	}
}
