package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/rhysd/actionlint"
)

// TestWorkflows: actionlint finds nothing in them, each action has a major version, and their
// commands are verbs of make.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{Shellcheck: "shellcheck", WorkingDir: "../.."})
	if err != nil {
		t.Fatal(err)
	}
	found, err := linter.LintFiles(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range found {
		t.Error(e)
	}
	uses := regexp.MustCompile(`(?m)^ *- uses: (.*)$`)
	major := regexp.MustCompile(`^[\w.-]+/[\w.-]+@v[0-9]+$`)
	run := regexp.MustCompile(`(?m)^ *- run: (.*)$`)
	verb := regexp.MustCompile(`^(sudo -E env "PATH=\$PATH" )?make |^gh release create `)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range uses.FindAllSubmatch(text, -1) {
			if !major.Match(m[1]) {
				t.Errorf("%s: %s has no major version", file, m[1])
			}
		}
		for _, m := range run.FindAllSubmatch(text, -1) {
			if !verb.Match(m[1]) {
				t.Errorf("%s: %s is no verb of make", file, m[1])
			}
		}
	}
}
