package tokens

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// TestATokenThatRootIssuesIsForTheGateway: the file belongs to the user of the folder, as whom the
// gateway runs under systemd.
func TestATokenThatRootIssuesIsForTheGateway(t *testing.T) {
	dir := t.TempDir()
	want := os.Getuid()
	if want == 0 {
		want = 65534
		if err := os.Chown(dir, want, want); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "tokens.json")
	for _, name := range []string{"ada", "bob"} { // the first makes the file
		if _, err := Open(path).Issue(Principal{Name: name, Role: Viewer}, noon, 0); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if of, ok := info.Sys().(*syscall.Stat_t); !ok || int(of.Uid) != want || info.Mode().Perm() != 0o600 {
			t.Errorf("it belongs to %v with mode %v, want %d and 0600", of, info.Mode(), want)
		}
	}
}

// TestATokenFromIssueToRevocation, seen by a gateway that reads the file of another process.
func TestATokenFromIssueToRevocation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "tokens.json")
	command, gateway := Open(path), Open(path)
	ada := Principal{Name: "ada", Role: Submitter, User: "ada"}
	token, err := command.Issue(ada, noon, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if b, err := os.ReadFile(path); err != nil || len(token) < 40 || bytes.Contains(b, []byte(token)) {
		t.Errorf("the token is in the file, or short: %v", err)
	}
	for name, c := range map[string]struct {
		token string
		at    time.Time
		want  bool
	}{
		"valid":   {token, noon, true},
		"expired": {token, noon.Add(time.Hour), false},
		"other":   {token[1:], noon, false},
		"empty":   {"", noon, false},
	} {
		if p, ok := gateway.Find(c.token, c.at); ok != c.want || ok && p != ada {
			t.Errorf("%s: %v %v", name, p, ok)
		}
	}
	if _, err := command.Issue(ada, noon, 0); errcode.Of(err) != errcode.Conflict {
		t.Errorf("%v", err)
	}
	if !gateway.Known(ada, noon) || gateway.Known(Principal{Name: "ada", Role: Operator}, noon) {
		t.Error("another role is known, or its own is not")
	}
	again, err := command.Issue(ada, noon.Add(2*time.Hour), 0) // the old one has expired
	if err != nil || again == token {
		t.Errorf("%v", err)
	}
	if all, err := gateway.All(); err != nil || len(all) != 1 || !all[0].Expires.IsZero() {
		t.Errorf("%v %v", all, err)
	}
	if err := command.Revoke("ada"); err != nil {
		t.Fatal(err)
	}
	if _, ok := gateway.Find(again, noon); ok || gateway.Known(ada, noon) {
		t.Error("a revoked token is accepted")
	}
	if err := command.Revoke("ada"); errcode.Of(err) != errcode.NotFound {
		t.Errorf("%v", err)
	}
}

// TestAFileThatOthersCanReadAdmitsNobody, and neither does one that is broken.
func TestAFileThatOthersCanReadAdmitsNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	f := Open(path)
	token, err := f.Issue(Principal{Name: "ada", Role: Viewer}, noon, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, ok := f.Find(token, noon); ok {
		t.Error("it is accepted")
	}
	if _, err := f.All(); errcode.Of(err) != errcode.Invalid {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := f.Find(token, noon); ok {
		t.Error("a broken file is accepted")
	}
	if _, err := f.Issue(Principal{Name: "bob", Role: Viewer}, noon, 0); errcode.Of(err) != errcode.Invalid {
		t.Errorf("a broken file was overwritten: %v", err)
	}
}

// TestWhatIsRefused with the field and what it may be.
func TestWhatIsRefused(t *testing.T) {
	f := Open(filepath.Join(t.TempDir(), "tokens.json"))
	for _, p := range []Principal{{Name: "../x", Role: Viewer}, {Name: "", Role: Viewer}, {Name: "gateway", Role: Operator}, {Name: "ada", Role: "root"}} {
		if _, err := f.Issue(p, noon, 0); errcode.Of(err) != errcode.Invalid {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if _, err := f.Issue(Principal{Name: "ada", Role: Viewer}, noon, -time.Hour); errcode.Of(err) != errcode.Invalid {
		t.Errorf("%v", err)
	}
	if !Operator.Includes(Viewer) || !Viewer.Includes(Viewer) || Viewer.Includes(Submitter) || Role("").Includes(Viewer) {
		t.Error("the order of the roles is wrong")
	}
}
