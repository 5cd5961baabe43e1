package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// script writes the completion of a shell to a file.
func script(t *testing.T, shell string) string {
	t.Helper()
	root, err := newRoot()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := completionCommand(root, &out)
	cmd.SetArgs([]string{shell})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(at, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return at
}

// TestBashWithoutItsPackageGetsAHint checks that the hint is printed when the script is sourced and
// at a TAB, and never if the package is installed.
func TestBashWithoutItsPackageGetsAHint(t *testing.T) {
	at := script(t, "bash")
	for name, c := range map[string]struct {
		line    string
		message int
	}{
		"read":             {"source " + at, 1},
		"read and TAB":     {"source " + at + "; COMP_WORDS=(regroup st); COMP_CWORD=1 __start_regroup", 2},
		"with the package": {"_get_comp_words_by_ref() { :; }; source " + at, 0},
		"with a new one":   {"_init_completion() { return 1; }; source " + at + "; __start_regroup", 0},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), "bash", "--norc", "--noprofile", "-c", c.line+"; true").CombinedOutput()
			if err != nil || strings.Count(string(out), needsPackage) != c.message || strings.Contains(string(out), "not found") {
				t.Errorf("%v, says\n%s\nwant the hint %d times", err, out, c.message)
			}
		})
	}
}

// TestEveryShellHasAScript checks that each script completes the program.
func TestEveryShellHasAScript(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		b, err := os.ReadFile(script(t, shell))
		if err != nil || !bytes.Contains(b, []byte("__complete")) {
			t.Errorf("%s: %d bytes, %v", shell, len(b), err)
		}
	}
}

// TestValuesOfFlags: flags that take one of a few words, and --context, are completed with them.
func TestValuesOfFlags(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir()) // not the jobs of who runs the tests
	complete := func(words ...string) string {
		t.Helper()
		root, err := newRoot()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(io.Discard)
		root.SetArgs(words)
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(out.String()), " ")
	}
	complete("context", "add", "lab", "--server", "nats://lab:4222")
	for want, words := range map[string][]string{
		"restart in-process :4":                 {"run", "--recovery", ""},
		"running finishing step>= workers>= :4": {"wait", "--for", ""},
		"step>= :6":                             {"wait", "--for", "st"},
		"running :4":                            {"wait", "--for", "r"},
		":4":                                    {"node", "quarantine", "node-a", "--for", ""},
		"lab :4":                                {"ls", "--context", ""},
		"auto always never :4":                  {"status", "--color", ""},
		"worker :4":                             {"run", "--exit-code-from", ""},
	} {
		if got := complete(append([]string{"__complete"}, words...)...); got != want {
			t.Errorf("%v completes %q, want %q", words, got, want)
		}
	}
}
