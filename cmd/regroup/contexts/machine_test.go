package contexts

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSettingsOfTheMachine: a user has the settings and contexts of the machine's file below the
// user's own, and changes none of them.
func TestSettingsOfTheMachine(t *testing.T) {
	kept := machineFile
	t.Cleanup(func() { machineFile = kept })
	machineFile = filepath.Join(t.TempDir(), "config.yaml")
	text := "selected: shared\nsettings: {timeout: 40s, color: never}\ncontexts:\n  shared: {server: 'nats://shared:4222', creds: shared.creds}\n  other: {server: 'nats://other:4222'}\n"
	if err := os.WriteFile(machineFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	u := newUser(t)
	creds := filepath.Join(filepath.Dir(machineFile), "shared.creds")
	u.prints("probe", "nats://shared:4222 "+creds+" 40s table never ")
	u.prints("context ls -o name", "other\nshared\n")
	u.must("context add mine --server nats://mine:4222 --timeout 9s --select", "context mine is kept\ncontext mine is selected\n")
	u.prints("probe", "nats://mine:4222  9s table never ")
	u.must("context select other", "context other is selected\n")
	u.prints("probe", "nats://other:4222  40s table never ")
	u.must("context -", "context mine is selected\n")
	u.must("context add shared --server nats://own:4222", "context shared is kept\n")
	u.prints("probe --context shared", "nats://own:4222  40s table never ")
	if o := u.run("context rm other"); o.Exit != 4 {
		t.Errorf("a context of the machine is removed: %+v", o)
	}
	if now, err := os.ReadFile(machineFile); err != nil || string(now) != text {
		t.Errorf("the machine's file is changed: %v\n%s", err, now)
	}
	if err := os.WriteFile(machineFile, []byte("settings: {timeout: soon}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if o := u.run("probe"); o.Exit != 2 {
		t.Errorf("a mistake in it is passed over: %+v", o)
	}
}
