package dashboard

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/internal/golden"
)

// TestOutputOfWorkers runs the modules that show output in Node.js: colours become classes, nothing
// becomes HTML, and a line that is not finished is replaced by the next one of its source.
func TestOutputOfWorkers(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, text []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("package.json", []byte(`{"type": "module"}`))
	for _, name := range []string{"ansi.js", "lines.js"} {
		text, err := files.ReadFile("files/" + name)
		if err != nil {
			t.Fatal(err)
		}
		put(name, text)
	}
	script, err := os.ReadFile("testdata/output.mjs")
	if err != nil {
		t.Fatal(err)
	}
	put("output.mjs", script)
	cmd := exec.Command("node", filepath.Join(dir, "output.mjs"))
	got, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	golden.Compare(t, "testdata/output.golden", string(got))
}

// TestNoTextBecomesHTML: components write text, which the browser escapes.
func TestNoTextBecomesHTML(t *testing.T) {
	entries, err := files.ReadDir("files")
	if err != nil {
		t.Fatal(err)
	}
	html := regexp.MustCompile(`dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write`)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".js") {
			continue
		}
		text, err := files.ReadFile("files/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if m := html.Find(text); m != nil {
			t.Errorf("%s has %s", e.Name(), m)
		}
	}
}
