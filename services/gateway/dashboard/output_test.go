package dashboard

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/internal/golden"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// runScript compares what a script prints in Node.js, which imports modules of the dashboard, with
// its golden file.
func runScript(t *testing.T, name string, modules ...string) {
	t.Helper()
	dir := t.TempDir()
	put := func(name string, text []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("package.json", []byte(`{"type": "module"}`))
	for _, name := range modules {
		text, err := files.ReadFile("files/" + name)
		if err != nil {
			t.Fatal(err)
		}
		put(name, text)
	}
	script, err := os.ReadFile("testdata/" + name + ".mjs")
	if err != nil {
		t.Fatal(err)
	}
	put("script.mjs", script)
	cmd := exec.Command("node", filepath.Join(dir, "script.mjs"))
	got, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	golden.Compare(t, "testdata/"+name+".golden", string(got))
}

// TestOutputOfWorkers runs the modules that show output: colours become classes, nothing becomes
// HTML, and a line that is not finished is replaced by the next one of its source.
func TestOutputOfWorkers(t *testing.T) { runScript(t, "output", "ansi.js", "lines.js") }

// TestRedundancyOfAJob: the newer one of what was read and what was sent is shown, for as long as
// it holds.
func TestRedundancyOfAJob(t *testing.T) { runScript(t, "redundancy", "format.js") }

// TestSpans: the pages write lengths of time as the command line does, and a sentence of the
// gateway has the ages that its times have now.
func TestSpans(t *testing.T) {
	runScript(t, "spans", "format.js")
	text, err := os.ReadFile("testdata/spans.golden")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for line := range strings.Lines(string(text)) {
		ms, got, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.Atoi(ms); err == nil && n >= 10 && !strings.Contains(got, " ") {
			compared++
			if want := view.Span(time.Duration(n) * time.Millisecond); got != want {
				t.Errorf("%s ms are %s, and %s in the command line", ms, got, want)
			}
		}
	}
	if compared < 15 {
		t.Errorf("only %d were compared", compared)
	}
}

// TestMembersOfAJob: of one that has ended its last generation, in place of none.
func TestMembersOfAJob(t *testing.T) { runScript(t, "members", "format.js") }

// TestGPUsOfANode: what is not known of all of them is not shown.
func TestGPUsOfANode(t *testing.T) { runScript(t, "gpus", "format.js") }

// TestCurves: steps that were made again are drawn once, and smoothing begins at the first value.
func TestCurves(t *testing.T) { runScript(t, "curves", "curves.js") }

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
