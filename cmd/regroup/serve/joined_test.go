package serve

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/jetstream/identity"
)

// machine is one with a state folder, on which agents are started.
type machine struct {
	t     *testing.T
	state string
	now   time.Time
}

// starts parses the command line of an agent, and returns how it would connect, and as which node.
func (m machine) starts(args ...string) (boot.Config, string, error) {
	m.t.Helper()
	c := boot.Config{StateDir: m.state}
	a, err := LoadAgent()
	if err != nil {
		m.t.Fatal(err)
	}
	root := &cobra.Command{Use: "regroup", SilenceErrors: true, SilenceUsage: true}
	c.Flags(root.PersistentFlags())
	root.PersistentFlags().String("context", "", "")
	var made boot.Config
	cmd := &cobra.Command{Use: "agent", RunE: func(cmd *cobra.Command, _ []string) (err error) {
		made, a, _, err = joined(cmd, c, a, m.now)
		return err
	}}
	a.Flags(cmd.Flags())
	a.joinFlag(cmd.Flags())
	root.AddCommand(cmd)
	root.SetArgs(append([]string{"agent"}, args...))
	err = root.Execute()
	return made, a.Node, err
}

// tokens is a directory of identities, which makes tokens.
type tokens struct {
	t   *testing.T
	dir identity.Dir
}

func newTokens(t *testing.T) tokens {
	t.Helper()
	d, err := identity.Init(filepath.Join(t.TempDir(), "auth"), []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"REGROUP_SERVER", "REGROUP_CREDS", "REGROUP_AUTH", "REGROUP_CONTEXT", "REGROUP_TLSCERT", envJoin, "REGROUP_AGENT_NODE"} {
		t.Setenv(name, "")
	}
	return tokens{t, d}
}

func (c tokens) token(role access.Role, name string, node ident.NodeID, expires time.Duration) string {
	c.t.Helper()
	if _, err := c.dir.Issue(access.Identity{Role: role, Name: name, Node: node}, expires); err != nil {
		c.t.Fatal(err)
	}
	text, err := c.dir.JoinToken(name, "nats://127.0.0.1:4222")
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

// TestWhatAnAgentIsGivenWinsOverWhatItKeeps, and a token over variables.
func TestWhatAnAgentIsGivenWinsOverWhatItKeeps(t *testing.T) {
	c := newTokens(t)
	m := machine{t, t.TempDir(), time.Now()}
	expect := func(what string, server string, joined bool, node string, args ...string) {
		t.Helper()
		got, name, err := m.starts(args...)
		if err != nil || got.Server != server || strings.HasSuffix(got.Creds, "agents/node-a/join/user.creds") != joined || name != node {
			t.Errorf("%s: server %q, credentials %q, node %q, %v", what, got.Server, got.Creds, name, err)
		}
		if joined && (got.TLSCA != filepath.Join(filepath.Dir(got.Creds), "ca.pem") || got.Auth != "" || got.Secret != "") {
			t.Errorf("%s: %+v", what, got)
		}
	}
	expect("nothing is kept", "", false, "")
	a := c.token(access.RoleAgent, "node-a", "node-a", 0)
	expect("a token", "nats://127.0.0.1:4222", true, "node-a", "--join", a)
	expect("what is kept", "nats://127.0.0.1:4222", true, "node-a")
	expect("what is kept of the node", "nats://127.0.0.1:4222", true, "node-a", "--node", "node-a")
	expect("another node", "", false, "node-b", "--node", "node-b")
	expect("a server beside a token", "nats://10.0.0.1:4222", true, "node-a", "--join", a, "--server", "nats://10.0.0.1:4222")
	expect("a server", "nats://10.0.0.1:4222", false, "", "--server", "nats://10.0.0.1:4222")
	expect("credentials", "", false, "", "--creds", "other.creds")
	expect("a context", "", false, "", "--context", "lab")
	t.Setenv("REGROUP_AUTH", "/etc/regroup")
	expect("a directory", "", false, "")
	expect("a directory beside a token", "nats://127.0.0.1:4222", true, "node-a", "--join", a)
	t.Setenv("REGROUP_AUTH", "")
	ours := c.token(access.RoleParticipant, "ours", access.AnyNode, 0)
	if got, node, err := m.starts("--join", ours, "--node", "node-b"); err != nil || node != "node-b" || !strings.HasSuffix(got.Creds, "agents/node-b/join/user.creds") {
		t.Errorf("a token of any node: %s %s %v", got.Creds, node, err)
	}
	if _, _, err := m.starts(); errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), "--node: several nodes") || !strings.Contains(err.Error(), "node-b") {
		t.Errorf("two nodes have joined: %v", err)
	}
}

// TestWrongTokensAreRefused with the flag or variable that has them, and what is to be done.
func TestWrongTokensAreRefused(t *testing.T) {
	c := newTokens(t)
	m := machine{t, t.TempDir(), time.Now()}
	a := c.token(access.RoleAgent, "node-a", "node-a", 0)
	for _, w := range []struct {
		what, message string
		args          []string
	}{
		{"cut off", "--join: the token is incomplete or damaged", []string{"--join", a[:500]}},
		{"changed", "--join: the token is incomplete or damaged", []string{"--join", strings.ToLower(a)}},
		{"another version", "--join: the token is of version", []string{"--join", strings.Replace(a, "1_", "9_", 1)}},
		{"another node", "--join: the token is of node node-a, and --node", []string{"--join", a, "--node", "node-b"}},
		{"a client's", "--join: the token is of ada, a client and no agent", []string{"--join", c.token(access.RoleClient, "ada", "", 0)}},
		{"two credentials", "--creds: the token of --join has credentials", []string{"--join", a, "--creds", "x.creds"}},
		{"no file", "--join: open /no/such", []string{"--join", "@/no/such"}},
	} {
		_, _, err := m.starts(w.args...)
		if errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), w.message) || strings.Contains(err.Error(), a[20:60]) {
			t.Errorf("%s: %v, want %q", w.what, err, w.message)
		}
	}
	t.Setenv(envJoin, a[:700])
	if _, _, err := m.starts(); err == nil || !strings.HasPrefix(err.Error(), envJoin+": ") {
		t.Errorf("a variable: %v, want its name", err)
	}
	if all, _ := filepath.Glob(filepath.Join(m.state, "agents", "*")); len(all) > 0 {
		t.Errorf("a refused token is kept: %v", all)
	}
}

// TestAnExpiredTokenIsRefused where it is given and where it is kept, with the command that makes
// another.
func TestAnExpiredTokenIsRefused(t *testing.T) {
	c := newTokens(t)
	m := machine{t, t.TempDir(), time.Now()}
	token := c.token(access.RoleAgent, "node-a", "node-a", time.Hour)
	if _, _, err := m.starts("--join", token); err != nil {
		t.Error(err)
	}
	m.now = m.now.Add(2 * time.Hour)
	for _, args := range [][]string{{"--join", token}, nil} {
		_, _, err := m.starts(args...)
		if errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), "the token of node-a has expired at ") ||
			!strings.Contains(err.Error(), "regroup auth issue agent node-a --token") {
			t.Errorf("%d arguments: %v", len(args), err)
		}
	}
}

// TestHelpShowsNoToken: the defaults of flags are the values of variables.
func TestHelpShowsNoToken(t *testing.T) {
	t.Setenv(envJoin, "rgjoin1_secret")
	a, err := LoadAgent()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := AgentCommand(&boot.Config{}, &a)
	cmd.SetOut(&out)
	if err := cmd.Help(); err != nil || strings.Contains(out.String(), "rgjoin1_") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
