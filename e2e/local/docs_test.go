package local

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDocs runs every command of every sh block in the documents, in order, in an empty home
// directory next to bin/. For a line that calls make only the target is checked: running `make
// test` from a test would recurse. The bash block of README.md installs a wheel, and is run by
// python/tests/test_wheel.py.
func TestDocs(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, doc := range append(docs, filepath.Join(root, "README.md")) {
		b, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		home := t.TempDir()
		if err := os.Symlink(binaries, filepath.Join(home, "bin")); err != nil {
			t.Fatal(err)
		}
		for _, line := range commands(string(b)) {
			t.Run(filepath.Base(doc)+"/"+line, func(t *testing.T) {
				ran++
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				dir, cmd := home, line
				if target, ok := strings.CutPrefix(line, "make "); ok {
					dir, cmd = root, "make -n "+target
				}
				c := exec.CommandContext(ctx, "sh", "-c", cmd)
				c.Dir = dir
				c.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME=", "NO_COLOR=1")
				if out, err := c.CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", line, err, tail(out, 4000))
				}
			})
		}
	}
	if ran == 0 {
		t.Error("no document has a command")
	}
}

// commands returns the lines of the ```sh blocks, without comments.
func commands(doc string) []string {
	var out []string
	inside := false
	for line := range strings.Lines(doc) {
		line = strings.TrimSpace(line)
		switch {
		case line == "```sh":
			inside = true
		case strings.HasPrefix(line, "```"):
			inside = false
		case inside:
			if cmd, _, _ := strings.Cut(line, " #"); strings.TrimSpace(cmd) != "" && !strings.HasPrefix(line, "#") {
				out = append(out, strings.TrimSpace(cmd))
			}
		}
	}
	return out
}
