package contexts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/jetstream/identity"
)

// tokenFile has a join token of a user in a file.
func tokenFile(t *testing.T, role access.Role, node ident.NodeID) string {
	t.Helper()
	d, err := identity.Init(filepath.Join(t.TempDir(), "auth"), []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Issue(access.Identity{Role: role, Name: "ada", Node: node}, time.Hour); err != nil {
		t.Fatal(err)
	}
	text, err := d.JoinToken("ada", "nats://127.0.0.1:4222")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestAContextOfAJoinToken needs nothing else, moves with the folder of the settings, and takes its
// credentials away when it is removed.
func TestAContextOfAJoinToken(t *testing.T) {
	u := newUser(t)
	file := tokenFile(t, access.RoleClient, "")
	u.must("context add lab --join @"+file+" --select", "context lab is kept\ncontext lab is selected\n")
	config := filepath.Join(u.env["XDG_CONFIG_HOME"], "regroup")
	at := filepath.Join(config, "joined", "lab", "user.creds")
	u.prints("probe", "nats://127.0.0.1:4222 "+at+" 15s table auto ")
	if text, err := os.ReadFile(filepath.Join(config, "config.yaml")); err != nil || !strings.Contains(string(text), "creds: joined/lab/user.creds\n") {
		t.Errorf("%v:\n%s", err, text)
	}
	if i, err := os.Stat(at); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", i, err)
	}
	moved := t.TempDir()
	if err := os.Rename(config, filepath.Join(moved, "regroup")); err != nil {
		t.Fatal(err)
	}
	u.env["XDG_CONFIG_HOME"] = moved
	at = filepath.Join(moved, "regroup", "joined", "lab", "user.creds")
	u.prints("probe", "nats://127.0.0.1:4222 "+at+" 15s table auto ")
	u.must("context rm lab", "context lab is removed\nno context is selected\n")
	if _, err := os.Stat(filepath.Dir(at)); !os.IsNotExist(err) {
		t.Errorf("the credentials are left: %v", err)
	}
	for line, message := range map[string]string{
		"context add lab --join @" + tokenFile(t, access.RoleAgent, "node-a"): "is for regroup agent --join",
		"context add lab --join rgjoin1_half":                                 "--join: the token is incomplete or damaged",
		"context add lab --join @" + file + " --creds " + file:                "give no --creds",
	} {
		if o := u.run(line); o.Exit != 2 || !strings.Contains(o.Err, message) {
			t.Errorf("%s: %+v, want %q", line, o, message)
		}
	}
	u.prints("context ls", "")
}
