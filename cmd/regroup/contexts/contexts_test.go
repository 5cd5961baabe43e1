package contexts

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
	"github.com/regroup-io/regroup/internal/exitcode"
)

// user is a user with a home directory.
type user struct {
	t   *testing.T
	env map[string]string
}

func newUser(t *testing.T) *user {
	return &user{t, map[string]string{"XDG_CONFIG_HOME": t.TempDir()}}
}

func (u *user) getenv(name string) string { return u.env[name] }

// run runs a command line of a program whose command show prints the values of its flags.
func (u *user) run(line string) commandtest.Output {
	u.t.Helper()
	var out, errs bytes.Buffer
	e := commandtest.New(u.t).Env("", &out, &errs)
	e.Getenv = u.getenv
	root := &cobra.Command{Use: "regroup", SilenceErrors: true, SilenceUsage: true}
	for _, name := range []string{"server", "creds", "tlsca", "tlscert", "tlskey", "auth"} {
		root.PersistentFlags().String(name, "", "")
	}
	command.GlobalFlags(root.PersistentFlags())
	Flags(root.PersistentFlags())
	probe := &cobra.Command{Use: "probe", RunE: func(cmd *cobra.Command, _ []string) error {
		if err := Apply(cmd, u.getenv); err != nil {
			return err
		}
		for _, name := range []string{"server", "creds", "timeout", "output", "color"} {
			out.WriteString(cmd.Flag(name).Value.String() + " ")
		}
		return nil
	}}
	command.Output(probe, command.Table, command.JSON)
	root.AddCommand(Command(e), ConfigCommand(e), probe)
	root.SetArgs(strings.Fields(line))
	err := root.Execute()
	if err != nil {
		errs.WriteString(err.Error() + "\n")
	}
	return commandtest.Output{Out: out.String(), Err: errs.String(), Exit: exitcode.Of(err)}
}

func (u *user) must(line, message string) {
	u.t.Helper()
	if o := u.run(line); o.Exit != 0 || o.Err != message {
		u.t.Errorf("%s: %+v, want %q", line, o, message)
	}
}

func (u *user) prints(line, want string) {
	u.t.Helper()
	if o := u.run(line); o.Exit != 0 || o.Out != want {
		u.t.Errorf("%s: %+v, want %q", line, o, want)
	}
}

// TestAContextFromItsBeginningToItsEnd saves, lists, selects, shows, uses and removes a context.
func TestAContextFromItsBeginningToItsEnd(t *testing.T) {
	u := newUser(t)
	creds := filepath.Join(t.TempDir(), "me.creds")
	if err := os.WriteFile(creds, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	u.prints("context ls", "")
	u.prints("probe", "  15s table auto ")
	u.must("context add prod --server nats://me:secret@broker:4222 --creds "+creds+" --timeout 30s --output json --description both", "context prod is kept\n")
	u.must("context add lab --server nats://lab:4222 --select", "context lab is kept\ncontext lab is selected\n")
	u.prints("context ls", "   NAME  SERVER                       DESCRIPTION\n*  lab   nats://lab:4222\n   prod  nats://me:xxxxx@broker:4222  both\n")
	u.prints("context ls -o name", "lab\nprod\n")
	u.prints("probe", "nats://lab:4222  15s table auto ")
	u.must("context select prod", "context prod is selected\n")
	u.prints("context show", "name: prod\nselected: true\ndescription: both\nserver: nats://me:xxxxx@broker:4222\ncreds: "+creds+"\ntimeout: 30s\noutput: json\n")
	u.prints("probe", "nats://me:secret@broker:4222 "+creds+" 30s json auto ")
	u.must("context -", "context lab is selected\n")
	u.must("context select -", "context prod is selected\n")
	u.must("context rm prod", "context prod is removed\nno context is selected\n")
	u.prints("probe", "  15s table auto ")
	u.must("context select lab", "context lab is selected\n")
	u.must("context select --none", "no context is selected\n")
	u.prints("probe", "  15s table auto ")
}

// TestPrecedence: flag, environment, context, default.
func TestPrecedence(t *testing.T) {
	u := newUser(t)
	u.must("context add prod --server nats://prod:4222 --timeout 30s --output json --color never --select", "context prod is kept\ncontext prod is selected\n")
	u.must("context add lab --server nats://lab:4222", "context lab is kept\n")
	u.prints("probe", "nats://prod:4222  30s json never ")
	u.prints("probe --timeout 1s -o table --color always", "nats://prod:4222  1s table always ")
	u.prints("probe --context lab", "nats://lab:4222  15s table auto ")
	u.env["REGROUP_CONTEXT"] = "lab"
	u.prints("probe", "nats://lab:4222  15s table auto ")
	u.prints("probe --context prod", "nats://prod:4222  30s json never ")
	u.env = map[string]string{"XDG_CONFIG_HOME": u.env["XDG_CONFIG_HOME"], "REGROUP_TIMEOUT": "7s", "REGROUP_SERVER": "nats://env:4222", "REGROUP_OUTPUT": "yaml"}
	u.prints("probe", "nats://env:4222  7s table never ") // it has no yaml
	u.prints("probe --server nats://flag:4222 --timeout 8s", "nats://flag:4222  8s table never ")
	u.env["REGROUP_OUTPUT"] = "ymal"
	if o := u.run("probe"); o.Exit != 2 || !strings.Contains(o.Err, `REGROUP_OUTPUT: output: "ymal" is unknown`) {
		t.Errorf("%+v", o)
	}
}

// TestACredentialOfAnotherServerIsNotSent checks that the selected context does not apply to a
// server that is given by other means.
func TestACredentialOfAnotherServerIsNotSent(t *testing.T) {
	u := newUser(t)
	if err := os.MkdirAll(filepath.Join(u.env["XDG_CONFIG_HOME"], "regroup"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := "selected: prod\ncontexts: {prod: {server: nats://prod:4222, creds: /me.creds, timeout: 30s}}\n"
	if err := os.WriteFile(filepath.Join(u.env["XDG_CONFIG_HOME"], "regroup", "config.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	u.prints("probe", "nats://prod:4222 /me.creds 30s table auto ")
	u.prints("probe --server nats://other:4222", "nats://other:4222  30s table auto ")
	u.prints("probe --server nats://other:4222 --context prod", "nats://other:4222 /me.creds 30s table auto ")
	u.env["REGROUP_SERVER"] = "nats://other:4222"
	u.prints("probe", "nats://other:4222  30s table auto ")
}

func TestRefusals(t *testing.T) {
	u := newUser(t)
	u.must("context add prod --server nats://prod:4222", "context prod is kept\n")
	for line, want := range map[string]struct {
		exit    int
		message string
	}{
		"context add prod --server prod":    {2, `server: "prod" is no URL`},
		"context add prod --gateway lab":    {2, `gateway: "lab" is no URL: write https://host:8080`},
		"context add prod/x":                {2, `"prod/x" is no name of a context`},
		"context add prod --creds /no/such": {2, "creds: stat /no/such: no such file or directory"},
		"context add prod --output jsno":    {2, `output: "jsno" is unknown`},
		"context select prdo":               {3, `did you mean "prod"?`},
		"context select":                    {2, "wants NAME"},
		"context rm nats:old":               {2, "another program"},
		"context show other":                {3, `there is no context "other"`},
		"context show nats:old":             {3, `there is no context "old" of the NATS command line`},
		"probe --context prdo":              {3, `--context: there is no context "prdo"`},
	} {
		if o := u.run(line); o.Exit != want.exit || !strings.Contains(o.Err, want.message) {
			t.Errorf("%s: %+v, want exit %d, %q", line, o, want.exit, want.message)
		}
	}
}
