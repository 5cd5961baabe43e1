package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events/errcode"
)

// printService runs regroup service print, and returns what is on stdout and stderr.
func printService(t *testing.T, args ...string) (out, errs string, err error) {
	t.Helper()
	root, err := newRoot()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetArgs(append([]string{"service", "print"}, args...))
	err = root.Execute()
	return stdout.String(), stderr.String(), err
}

// TestUnitsArePrinted: each is the file of deploy/systemd, to the byte, and it is said where it
// belongs; all together have every file once. What is not there is an error with a hint.
func TestUnitsArePrinted(t *testing.T) {
	all, _, err := printService(t)
	if err != nil {
		t.Fatal(err)
	}
	printed := map[string]bool{}
	for _, u := range units() {
		want, err := os.ReadFile(filepath.Join("..", "..", "deploy", "systemd", u.file))
		if err != nil {
			t.Fatal(err)
		}
		printed[u.file] = true
		for _, name := range []string{u.name, u.file} {
			out, errs, err := printService(t, name)
			if err != nil || out != string(want) || !strings.Contains(errs, "it belongs at "+filepath.Dir(u.path)+"/"+u.file+"; then: ") {
				t.Errorf("%s: %v, stderr %q, stdout\n%s", name, err, errs, out)
			}
		}
		if n := strings.Count(all, "# "+u.path+"\n"+string(want)); n != 1 {
			t.Errorf("%s is there %d times among all", u.file, n)
		}
	}
	files, err := filepath.Glob("../../deploy/systemd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := filepath.Base(file); filepath.Ext(name) != ".go" && !printed[name] {
			t.Errorf("%s is not printed", name)
		}
	}
	for name, hint := range map[string]string{"agnet": `did you mean "agent"?`, "nosuch": "known are broker, agent, env, discovery"} {
		if _, _, err := printService(t, name); errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: %v, want %q", name, err, hint)
		}
	}
}
