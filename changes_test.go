package regroup_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestWorkedChanges applies the changes that CONTRIBUTING.md shows, all to one copy of the tree,
// and runs the tests of what they touch.
func TestWorkedChanges(t *testing.T) {
	patches, err := filepath.Glob("docs/changes/*.patch")
	if err != nil || len(patches) != 3 {
		t.Fatalf("%q: %v, want three changes", patches, err)
	}
	guide, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	tree := t.TempDir()
	copyTree(t, tree)
	run := func(name string, args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir = tree
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
	}
	packages := map[string]bool{}
	for _, p := range patches {
		if !bytes.Contains(guide, []byte(filepath.ToSlash(p))) {
			t.Errorf("CONTRIBUTING.md does not show %s", p)
		}
		text, err := filepath.Abs(p)
		if err != nil {
			t.Fatal(err)
		}
		run("git", "apply", text)
		for _, file := range touched(t, text) {
			if strings.HasSuffix(file, ".go") && path.Dir(file) != "." {
				packages["./"+path.Dir(file)] = true
			}
		}
	}
	run("go", append([]string{"test", "./events/cloudevent", "./events/access"}, slices.Sorted(maps.Keys(packages))...)...)
	run("go", "test", "-run", "TestImports|TestSource|TestSizes", ".")
}

// touched lists the files that a patch changes.
func touched(t *testing.T, patch string) []string {
	t.Helper()
	text, err := os.ReadFile(patch)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for line := range strings.Lines(string(text)) {
		if file, ok := strings.CutPrefix(strings.TrimSpace(line), "+++ b/"); ok {
			files = append(files, file)
		}
	}
	return files
}

// copyTree copies the module without what is built, downloaded or hidden.
func copyTree(t *testing.T, to string) {
	t.Helper()
	for _, entry := range []string{"go.mod", "go.sum", "arch_test.go", "docs", "agent", "client", "cmd", "collective", "deploy", "e2e", "elastic", "events", "examples", "internal", "jetstream", "python", "services", "CONTRIBUTING.md", "README.md"} {
		if info, err := os.Stat(entry); err != nil {
			t.Fatal(err)
		} else if info.IsDir() {
			if err := os.CopyFS(filepath.Join(to, entry), os.DirFS(entry)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		b, err := os.ReadFile(entry)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, entry), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
