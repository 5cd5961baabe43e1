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
	for name, hint := range map[string]string{"agnet": `did you mean "agent"?`, "nosuch": "known are broker, agent, gateway, env, discovery"} {
		if _, _, err := printService(t, name); errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: %v, want %q", name, err, hint)
		}
	}
}

// TestEveryServiceHasAUnit: what `regroup serve` runs can be started by systemd, all with the same
// hardening, and what one keeps is in the folder that systemd makes for it.
func TestEveryServiceHasAUnit(t *testing.T) {
	root, err := newRoot()
	if err != nil {
		t.Fatal(err)
	}
	serve, _, err := root.Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	hardening := ""
	for _, c := range serve.Commands() {
		name := c.Name()
		if name == "nats" {
			name = "broker"
		}
		text, _, err := printService(t, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.Contains(text, "ExecStart=/usr/local/bin/regroup serve ") || !strings.Contains(text, "\nEnvironmentFile=-/etc/regroup/regroup.env\n") {
			t.Errorf("%s does not start it, or not with the variables of all:\n%s", name, text)
		}
		_, own, _ := strings.Cut(text, "\nDynamicUser=yes\n")
		own, _, _ = strings.Cut(own, "\n[Install]")
		if hardening == "" {
			hardening = own
		}
		if own == "" || own != hardening {
			t.Errorf("%s has another hardening:\n%s", name, own)
		}
		_, state, kept := strings.Cut(text, " REGROUP_STATE_DIR=/var/lib/")
		state, _, _ = strings.Cut(state, " ")
		if keeps := name == "broker" || name == "gateway"; kept != keeps || kept && !strings.Contains(text, "\nStateDirectory="+state+"\n") {
			t.Errorf("%s keeps something: %v, and its folder is %q:\n%s", name, keeps, state, text)
		}
	}
}
