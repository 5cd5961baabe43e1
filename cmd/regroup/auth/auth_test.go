package auth_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/auth"
	"github.com/regroup-io/regroup/cmd/regroup/contexts"
	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream/identity"
	"github.com/regroup-io/regroup/services/gateway/tokens"
)

// shell runs commands on one directory.
type shell struct {
	t       *testing.T
	dir     string
	now     time.Time
	server  string // of the configuration
	config  string // $XDG_CONFIG_HOME
	printed string // by the last command, on stderr
}

func (s *shell) run(args ...string) (string, error) {
	s.t.Helper()
	var out, errs bytes.Buffer
	env := command.Env{Out: &out, Err: &errs, Width: 100, Getenv: func(name string) string { return map[string]string{"XDG_CONFIG_HOME": s.config}[name] }, Now: func() time.Time { return s.now }}
	root := &cobra.Command{Use: "regroup"}
	command.GlobalFlags(root.PersistentFlags())
	root.AddCommand(auth.Command(env, &boot.Config{Auth: s.dir, Server: s.server}))
	root.SetArgs(append([]string{"auth"}, args...))
	root.SetOut(&out)
	err := root.ExecuteContext(s.t.Context())
	s.printed = errs.String()
	return out.String(), err
}

func (s *shell) must(args ...string) string {
	s.t.Helper()
	out, err := s.run(args...)
	if err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return out
}

func (s *shell) users() map[string]identity.User {
	s.t.Helper()
	var all []identity.User
	if err := json.Unmarshal([]byte(s.must("ls", "-o", "json")), &all); err != nil {
		s.t.Fatal(err)
	}
	of := map[string]identity.User{} // the newest of each name
	for _, u := range all {
		of[u.Name] = u
	}
	return of
}

func TestUsersAreMadeRotatedAndRevoked(t *testing.T) {
	s := &shell{t: t, dir: filepath.Join(t.TempDir(), "auth"), now: time.Now()}
	s.must("init", "--host", "127.0.0.1")
	for _, name := range append(events.ServiceNames(), "operator", "all", "gateway", identity.SystemUser) {
		if s.users()[name].Key == "" {
			t.Errorf("there is no user %s", name)
		}
	}
	out := filepath.Join(t.TempDir(), "a.creds")
	s.must("issue", "agent", "node-a", "--expires", "24h", "--out", out)
	info, err := os.Stat(out)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, %v, want mode 0600", out, info, err)
	}
	first := s.users()["node-a"]
	if first.Node != "node-a" || first.Expires.Sub(first.Issued) != 24*time.Hour {
		t.Errorf("%+v, want node-a for 24h", first)
	}
	if text := s.must("rotate", "node-a", "--out", "-"); !strings.Contains(text, "BEGIN NATS USER JWT") {
		t.Errorf("the credentials are not on stdout: %q", text)
	}
	second := s.users()["node-a"]
	if second.Key == first.Key || second.Expires.Sub(second.Issued) != 24*time.Hour || !second.Revoked.IsZero() {
		t.Errorf("%+v, want another key for 24h", second)
	}
	s.must("revoke", "node-a")
	s.must("issue", "agent", "node-a") // the name is free again
	table := s.must("ls")
	if strings.Count(table, "revoked") != 2 {
		t.Errorf("want two revoked users:\n%s", table)
	}
	s.must("issue", "viewer", "--expires", "1h")
	s.now = s.now.Add(2 * time.Hour)
	if table := s.must("ls"); strings.Count(table, "expired") != 1 {
		t.Errorf("want one expired user:\n%s", table)
	}
	s.must("rotate", identity.SystemUser)
	s.must("rotate", "--certificates", "--host", "broker.lab")
}

// TestMistakesAreExplained with the field and what it may be.
func TestMistakesAreExplained(t *testing.T) {
	s := &shell{t: t, dir: filepath.Join(t.TempDir(), "auth"), now: time.Now()}
	if _, err := s.run("issue", "client"); errcode.Of(err) != errcode.NotFound || !strings.Contains(err.Error(), "regroup auth init") {
		t.Errorf("before init: %v", err)
	}
	s.must("init", "--host", "127.0.0.1")
	for _, c := range []struct {
		args    []string
		code    errcode.Code
		message string
	}{
		{[]string{"init"}, errcode.Conflict, "already"},
		{[]string{"issue", "king"}, errcode.Invalid, "role: "},
		{[]string{"issue", "agent"}, errcode.Invalid, "NAME"},
		{[]string{"issue", "agent", "Node.A"}, errcode.Invalid, "name"},
		{[]string{"issue", "client", "ada", "--node", "node-a"}, errcode.Invalid, "belongs to no node"},
		{[]string{"issue", "client", "ada", "--expires", "-1s"}, errcode.Invalid, "expires: "},
		{[]string{"issue", "client", "registry"}, errcode.Conflict, "rotate or revoke"},
		{[]string{"revoke", "nobody"}, errcode.NotFound, "there are "},
		{[]string{"rotate"}, errcode.Invalid, "NAME"},
	} {
		if _, err := s.run(c.args...); errcode.Of(err) != c.code || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%v: %v, want %s with %q", c.args, err, c.code, c.message)
		}
	}
}

// TestJoinTokens are one line each, are listed, and are made of users that are valid.
func TestJoinTokens(t *testing.T) {
	s := &shell{t: t, dir: filepath.Join(t.TempDir(), "auth"), now: time.Now(), server: "nats://broker.lab:4222"}
	s.must("init", "--host", "broker.lab")
	first := s.must("issue", "agent", "node-a", "--token", "--expires", "24h")
	second := s.must("rotate", "node-a", "--token")
	if !strings.Contains(s.printed, "regroup agent --join -") {
		t.Errorf("it is not said what it is for: %q", s.printed)
	}
	ada := s.must("issue", "client", "ada", "--token")
	if !strings.Contains(s.printed, "regroup context add NAME --join -") {
		t.Errorf("it is not said what it is for: %q", s.printed)
	}
	for _, text := range []string{first, second, ada} {
		if j, err := identity.ParseJoin(text); err != nil || strings.Count(text, "\n") != 1 || j.Servers != s.server || j.Expires.IsZero() != (j.User == "ada") {
			t.Errorf("%s at %s until %s: %v", j.User, j.Servers, j.Expires, err)
		}
	}
	if first == second {
		t.Error("a rotated user has the token of before")
	}
	if table := s.must("ls"); strings.Count(table, "  token  ") != 3 || !strings.Contains(table, "until ") {
		t.Errorf("want three tokens, one of them until a time:\n%s", table)
	}
	for _, c := range []struct{ server, message string }{{"", "--server: write how"}, {"nats://elsewhere:4222", "not for elsewhere"}} {
		s.server = c.server
		if _, err := s.run("issue", "agent", "node-b", "--token"); errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%q: %v, want %q", c.server, err, c.message)
		}
	}
	if _, made := s.users()["node-b"]; made {
		t.Error("a user without a token is left")
	}
}

// TestAUserIsSavedAsAContext of the one who makes it.
func TestAUserIsSavedAsAContext(t *testing.T) {
	s := &shell{t: t, dir: filepath.Join(t.TempDir(), "auth"), now: time.Now(), server: "nats://broker.lab:4222", config: t.TempDir()}
	s.must("init", "--host", "broker.lab")
	s.must("issue", "client", "ada", "--save-context", "lab")
	if !strings.Contains(s.printed, "regroup ls --context lab") {
		t.Errorf("%q", s.printed)
	}
	f, err := contexts.Load(func(name string) string { return map[string]string{"XDG_CONFIG_HOME": s.config}[name] })
	if err != nil {
		t.Fatal(err)
	}
	want := contexts.Settings{Server: s.server, Creds: filepath.Join(s.dir, "users", "ada.creds"), TLSCA: filepath.Join(s.dir, "tls", "ca.pem")}
	if f.Contexts["lab"] != want {
		t.Errorf("%+v, want %+v", f.Contexts["lab"], want)
	}
	for _, wrong := range [][]string{{"bob", "--save-context", "a/b"}, {"bob", "--save-context", "lab", "--token"}, {"bob", "--save-context", "lab", "--out", "-"}} {
		if _, err := s.run(append([]string{"issue", "client"}, wrong...)...); errcode.Of(err) != errcode.Invalid {
			t.Errorf("%v: %v", wrong, err)
		}
	}
	if _, made := s.users()["bob"]; made {
		t.Error("a user is left of what was refused")
	}
}

// TestTokens for gateways are issued, listed and revoked; a token itself is printed once.
func TestTokens(t *testing.T) {
	s := &shell{t: t, dir: t.TempDir(), now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	file := filepath.Join(s.dir, "tokens.json")
	t.Setenv("REGROUP_GATEWAY_TOKENS", file)
	ada := strings.TrimSpace(s.must("token", "issue", "ada", "--role", "submitter", "--user", "ada", "--expires", "24h"))
	s.must("token", "issue", "grafana")
	if out := s.must("token", "ls"); strings.Contains(out, ada) || !strings.Contains(out, "submitter") || !strings.Contains(out, "viewer") {
		t.Error(out)
	}
	if p, ok := tokens.Open(file).Find(ada, s.now); !ok || p != (tokens.Principal{Name: "ada", Role: tokens.Submitter, User: "ada"}) {
		t.Errorf("%+v %v", p, ok)
	}
	for _, wrong := range [][]string{{"issue", "ada"}, {"issue", "bob", "--role", "root"}, {"issue", "A b"}, {"revoke", "nobody"}} {
		if _, err := s.run(append([]string{"token"}, wrong...)...); err == nil {
			t.Errorf("%v is accepted", wrong)
		}
	}
	s.must("token", "revoke", "ada")
	if out := s.must("token", "ls", "-o", "name"); out != "grafana\n" {
		t.Errorf("%q", out)
	}
}

// TestAnOldKeyIsKeptUntilItIsRevoked: a user has two keys meanwhile. Without --old all are revoked.
func TestAnOldKeyIsKeptUntilItIsRevoked(t *testing.T) {
	s := &shell{t: t, dir: filepath.Join(t.TempDir(), "auth"), now: time.Now(), server: "nats://127.0.0.1:4222"}
	s.must("init", "--host", "127.0.0.1")
	states := func(name string) (all []string) {
		for line := range strings.Lines(s.must("ls")) {
			if strings.HasPrefix(line, name+" ") { // the state is the last column, two spaces apart
				line = strings.TrimSpace(line)
				all = append(all, strings.TrimSpace(line[strings.LastIndex(line, "  "):]))
			}
		}
		return all
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if got := states("ada"); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	s.must("issue", "client", "ada")
	first := s.users()["ada"].Key
	if _, err := s.run("revoke", "ada", "--old"); errcode.Of(err) != errcode.NotFound || !strings.Contains(err.Error(), "rotate ada --keep-old") {
		t.Errorf("there is no old key: %v", err)
	}
	s.must("rotate", "ada", "--keep-old")
	expect("the old key is kept", "valid, old key", "valid")
	if got := s.users()["ada"].Key; got == first {
		t.Error("the key is the same")
	}
	if line := s.must("rotate", "ada", "--keep-old", "--token"); !strings.HasPrefix(line, "rgjoin1_") {
		t.Errorf("%.20q", line)
	}
	expect("two old keys are kept", "valid, old key", "valid, old key", "valid")
	s.must("revoke", "ada", "--old")
	expect("the old keys are revoked", "revoked", "revoked", "valid")
	s.must("rotate", "ada", "--keep-old")
	s.must("rotate", "ada")
	expect("without --keep-old all others are revoked", "revoked", "revoked", "revoked", "revoked", "valid")
	s.must("rotate", "ada", "--keep-old")
	s.must("revoke", "ada")
	expect("the user is revoked", "revoked", "revoked", "revoked", "revoked", "revoked", "revoked")
}
