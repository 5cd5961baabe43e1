package serve

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/agent/statedir"
	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream/identity"
)

const (
	envJoin   = "REGROUP_AGENT_JOIN"
	joinedDir = "join" // in the folder of the agent
)

// joined returns the configurations of an agent whose credentials are in a join token: one that it
// is given, or that it was given at an earlier start. Both stay as they are if there is none, or if
// a flag, a variable or a context that was named says how the cluster is reached; the follower of
// the token is nil then.
func joined(cmd *cobra.Command, c boot.Config, a AgentConfig, now time.Time) (boot.Config, AgentConfig, *boot.TokenFollower, error) {
	setting := a.Join
	a.Join = ""
	_ = os.Unsetenv(envJoin) // nothing that is started here inherits it
	var k boot.Token
	var err error
	switch {
	case setting != "":
		k, err = joinBy(cmd, c, a, setting, now)
	case given(cmd, "server", "creds", "auth", "context") || c.Secret != "":
		return c, a, nil, nil
	default:
		k, err = joinedBefore(c, a, now)
		if errcode.Of(err) == errcode.NotFound {
			return c, a, nil, nil
		}
	}
	if err != nil {
		return c, a, nil, err
	}
	if k.Node != access.AnyNode {
		a.Node = string(k.Node)
	}
	if !cmd.Flag("server").Changed {
		c.Server = k.Servers
	}
	if !given(cmd, "tlscert") {
		c.TLSCert, c.TLSKey = "", "" // of a context
	}
	c.Auth, c.Creds, c.TLSCA, c.Secret = "", k.Creds, k.TLSCA, ""
	f := &boot.TokenFollower{Used: k, Check: func(j identity.Join) error { return fits(j, a.Node, time.Now()) }}
	if file, is := strings.CutPrefix(setting, "@"); is {
		f.File = file
	}
	return c, a, f, nil
}

// following takes new tokens until the function that it returns is called.
func following(ctx context.Context, f boot.TokenFollower, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // workers have their grace after ctx
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx, log)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// given reports whether one of these settings is said by a flag or a variable.
func given(cmd *cobra.Command, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		f := cmd.Flag(name)
		return f != nil && f.Changed || os.Getenv("REGROUP_"+strings.ToUpper(name)) != ""
	})
}

// joinBy checks a token that was given to an agent, and keeps it.
func joinBy(cmd *cobra.Command, c boot.Config, a AgentConfig, setting string, now time.Time) (boot.Token, error) {
	from := envJoin
	if cmd.Flag("join").Changed {
		from = "--join"
	}
	for _, name := range []string{"creds", "auth", "tlsca"} {
		if cmd.Flag(name).Changed {
			return boot.Token{}, errcode.Errorf(errcode.Invalid, "--%s: the token of %s has credentials: give one of the two", name, from)
		}
	}
	j, text, err := boot.ReadToken(setting, cmd.InOrStdin())
	if err == nil {
		err = fits(j, a.Node, now)
	}
	if err != nil {
		return boot.Token{}, errcode.Errorf(errcode.Of(err), "%s: %w", from, err)
	}
	node := string(j.Node)
	if j.Node == access.AnyNode {
		node = a.Filled().Node
	}
	return boot.KeepToken(filepath.Join(statedir.Of(c.StateDir, node), joinedDir), text)
}

// fits checks that a token is for the agent of a node, and still valid.
func fits(j identity.Join, node string, now time.Time) error {
	switch {
	case !j.Role.OfNode():
		return errcode.Errorf(errcode.Invalid, "the token is of %s, a %s and no agent: make one with regroup auth issue agent NODE --token", j.User, j.Role)
	case node != "" && j.Node != access.AnyNode && string(j.Node) != node:
		return errcode.Errorf(errcode.Invalid, "the token is of node %s, and --node (REGROUP_AGENT_NODE) says %s: give no --node, or the token of that node", j.Node, node)
	case j.Node != access.AnyNode:
		if err := j.Node.Check(); err != nil {
			return errcode.Errorf(errcode.Invalid, "the token: %w", err)
		}
	}
	return expired(j, now)
}

// expired returns Invalid, with what is to be done, if a token is no longer valid.
func expired(j identity.Join, now time.Time) error {
	if !j.Expires.IsZero() && !now.Before(j.Expires) {
		return errcode.Errorf(errcode.Invalid, "the token of %s has expired at %s (it is %s here): make another with regroup auth issue %s %[1]s --token",
			j.User, j.Expires.Local().Format(time.DateTime), now.Local().Format(time.DateTime), j.Role)
	}
	return nil
}

// joinedBefore finds the token that an agent has kept; NotFound if there is none. Without a name
// of the node it is that of the host's name, or the only one.
func joinedBefore(c boot.Config, a AgentConfig, now time.Time) (boot.Token, error) {
	k, err := boot.LoadToken(filepath.Join(statedir.Of(c.StateDir, a.Filled().Node), joinedDir))
	if a.Node == "" && errcode.Of(err) == errcode.NotFound {
		all, _ := filepath.Glob(filepath.Join(statedir.Of(c.StateDir, "*"), joinedDir)) // the pattern is well-formed
		switch len(all) {
		case 0:
			return k, err
		case 1:
			k, err = boot.LoadToken(all[0])
		default:
			var names []string
			for _, dir := range all {
				names = append(names, filepath.Base(filepath.Dir(dir)))
			}
			return k, errcode.Errorf(errcode.Invalid, "--node: several nodes have joined from %s: name one of %s", c.StateDir, strings.Join(names, ", "))
		}
	}
	if err == nil {
		err = expired(k.Join, now)
	}
	return k, err
}
