// Package auth implements the commands for the directory of identities: who may connect to the
// brokers, and as what.
package auth

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/jetstream/identity"
)

// Command returns regroup auth with its verbs.
func Command(env command.Env, c *boot.Config) *cobra.Command {
	cmd := &cobra.Command{
		Use: "auth", Short: "Decide who may connect, and as what",
		Long: "Keeps identities in a directory: keys, credentials with the permissions of their role, certificates. Brokers that are given the directory (--auth) admit nobody else. " +
			"The default is auth in the state folder. Changes there hold at once for running brokers. The permissions are in docs/security.md.",
		Example: command.Examples("regroup auth init", "regroup auth issue agent node-a --expires 24h", "regroup auth issue client ada --out ada.creds",
			"regroup auth revoke ada"),
	}
	a := &call{env: env, config: c}
	cmd.AddCommand(a.init(), a.issue(), a.revoke(), a.rotate(), a.list(), a.token())
	return command.WithUsage(cmd)
}

type call struct {
	env    command.Env
	config *boot.Config
}

// path is the directory of identities.
func (a *call) path() string {
	return cmp.Or(a.config.Auth, filepath.Join(a.config.StateDir, identity.DefaultDir))
}

func (a *call) say(format string, args ...any) { fmt.Fprintf(a.env.Err, format+"\n", args...) }

func (a *call) init() *cobra.Command {
	var hosts []string
	cmd := &cobra.Command{
		Use: "init", Short: "Make the directory of identities", Args: command.Exactly(),
		Long: "Makes the keys of an operator and two accounts, certificates, and the users that every cluster has: one for each service, for the gateway, for regroup up and for regroup init.",
		Example: command.Examples("regroup auth init", "regroup auth init --auth /etc/regroup --host broker.lab --host 10.0.0.7",
			"regroup serve nats --auth /etc/regroup --listen 0.0.0.0:4222"),
		RunE: func(*cobra.Command, []string) error {
			all := hosts
			if len(all) == 0 {
				all = localHosts()
			}
			if _, err := identity.Init(a.path(), all); err != nil {
				return err
			}
			a.say("identities are in %s; brokers are reached as %s", a.path(), strings.Join(all, ", "))
			return nil
		},
	}
	hostFlag(cmd, &hosts)
	return cmd
}

func hostFlag(cmd *cobra.Command, hosts *[]string) {
	cmd.Flags().StringSliceVar(hosts, "host", nil, "name or address under which brokers are reached, for their certificate; default: those of this machine")
}

// localHosts returns the names and addresses of this machine.
func localHosts() []string {
	all := []string{"localhost", "127.0.0.1", "::1"}
	if host, err := os.Hostname(); err == nil {
		all = append(all, host)
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return all
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			all = append(all, n.IP.String())
		}
	}
	return all
}

func (a *call) issue() *cobra.Command {
	var node, user string
	var expires time.Duration
	var to delivery
	cmd := &cobra.Command{
		Use: "issue ROLE [NAME]", Short: "Make a user and its credentials file", Args: command.Between(1, "ROLE", "NAME"),
		Long: "Makes a user with the permissions of a role: " + roles() + ". The name of an agent or participant is that of its node; of others the role is the default. " +
			"A participant is an agent that comes to its job by itself (agent --join-job, torchrun). A submitter changes the jobs only that it has submitted, and with --user they run as this user of the nodes. " +
			"With --token all that its machine needs is printed as one line, for regroup agent --join: where the brokers are (--server), how they are verified, and the credentials.",
		Example: command.Examples("regroup auth issue agent node-a --expires 24h", "regroup auth issue agent node-a --token --server nats://broker.lab:4222",
			"regroup auth issue client ada --out ada.creds", "regroup auth issue submitter eve --user eve --out eve.creds", "regroup auth issue client ada --server nats://lab:4222 --save-context lab",
			"regroup auth issue participant ours --node '*'"),
		RunE: func(_ *cobra.Command, args []string) error {
			i := access.Identity{Role: access.Role(args[0]), Name: args[0], Node: ident.NodeID(node), User: user}
			if len(args) > 1 {
				i.Name = args[1]
			} else if i.Role.OfNode() {
				return errcode.Errorf(errcode.Invalid, "NAME is missing: an %s is of a node", i.Role)
			}
			if i.Role.OfNode() {
				i.Node = cmp.Or(i.Node, ident.NodeID(i.Name))
			}
			d, err := a.open(to)
			if err != nil {
				return err
			}
			u, err := d.Issue(i, expires)
			if err != nil {
				return err
			}
			return a.handOver(d, u, to)
		},
	}
	cmd.Flags().StringVar(&node, "node", "", "node of an agent or participant, * = any; default: NAME")
	cmd.Flags().StringVar(&user, "user", "", "of a submitter: user of the nodes as whom its jobs run; default: as they say")
	cmd.Flags().DurationVar(&expires, "expires", 0, "how long it is valid, like 24h; default: until it is revoked")
	to.flags(cmd)
	return cmd
}

func roles() string {
	var all []string
	for _, r := range access.Roles() {
		all = append(all, string(r))
	}
	return strings.Join(all, ", ")
}

func (a *call) revoke() *cobra.Command {
	var old bool
	cmd := &cobra.Command{
		Use: "revoke NAME", Short: "Refuse a user from now on", Args: command.Exactly("NAME"),
		Long:    "Revokes the credentials of a user, with all of its keys. Running brokers on this directory close its connections within a second; copy its accounts folder to brokers on other machines. With --old the newest key stays: that of regroup auth rotate --keep-old.",
		Example: command.Examples("regroup auth revoke ada", "regroup auth revoke node-a --old"),
		RunE: func(_ *cobra.Command, args []string) error {
			d, err := identity.Open(a.path())
			if err != nil {
				return err
			}
			if old {
				if err := d.RevokeOld(args[0]); err != nil {
					return err
				}
				a.say("the old keys of %s are revoked", args[0])
				return nil
			}
			if err := d.Revoke(args[0]); err != nil {
				return err
			}
			a.say("%s is revoked", args[0])
			return nil
		},
	}
	cmd.Flags().BoolVar(&old, "old", false, "revoke the keys before the newest one")
	return cmd
}

func (a *call) rotate() *cobra.Command {
	var to delivery
	var hosts []string
	var certificates, keep bool
	cmd := &cobra.Command{
		Use: "rotate NAME | --certificates", Short: "Replace the key of a user, or the certificates",
		Long: "Gives a user a new key, with the permissions that its role has now, and revokes the old one. Processes on the same file connect again with the new key. " +
			"With --keep-old both are valid, until regroup auth revoke NAME --old: for a process on another machine, which takes the new one from its file while it runs. " +
			"With --certificates those of brokers and clients are replaced; running brokers use them for new connections.",
		Example: command.Examples("regroup auth rotate registry", "regroup auth rotate ada --out ada.creds",
			"regroup auth rotate node-a --keep-old --token --server nats://broker.lab:4222", "regroup auth rotate --certificates --host broker.lab"),
	}
	cmd.Flags().BoolVar(&certificates, "certificates", false, "replace the certificates of brokers and clients, which are valid for 90 days")
	cmd.Flags().BoolVar(&keep, "keep-old", false, "the old key stays valid until regroup auth revoke NAME --old")
	hostFlag(cmd, &hosts)
	to.flags(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if certificates {
			return command.Exactly()(cmd, args)
		}
		return command.Exactly("NAME")(cmd, args)
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		d, err := a.open(to)
		if err != nil {
			return err
		}
		if certificates {
			if len(hosts) == 0 {
				hosts = localHosts()
			}
			if err := d.Certify(hosts); err != nil {
				return err
			}
			a.say("the certificates are replaced; brokers are reached as %s", strings.Join(hosts, ", "))
			return nil
		}
		u, err := d.Rotate(args[0], keep)
		if err != nil {
			return err
		}
		return a.handOver(d, u, to)
	}
	return cmd
}

func (a *call) list() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List users", Args: command.Exactly(),
		Long:    "Lists all users that were ever made, whether they were given away as a join token or as a credentials file, and whether they are valid.",
		Example: command.Examples("regroup auth ls", "regroup auth ls -o json"),
	}
	form := command.Reading(cmd, command.Table, command.JSON, command.YAML, command.Name)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := identity.Open(a.path())
		if err != nil {
			return err
		}
		all, err := d.Users()
		if err != nil {
			return err
		}
		return command.Print(a.env, cmd, form, all, command.Columns[identity.User]{
			Name: func(u identity.User) string { return u.Name }, Header: []string{"NAME", "ROLE", "NODE", "JOBS RUN AS", "GIVEN AS", "ISSUED", "STATE"},
			Row: func(_ screen.Palette, u identity.User) []string {
				as := "file"
				if u.Token {
					as = "token"
				}
				return []string{u.Name, string(u.Role), string(u.Node), runsAs(u), as, u.Issued.Local().Format(time.DateTime), state(all, u, a.env.Now())}
			},
		})
	}
	return cmd
}

// runsAs says as whom the jobs of a submitter run.
func runsAs(u identity.User) string {
	if u.Role != access.RoleSubmitter {
		return ""
	}
	return cmp.Or(u.RunAs, "anybody")
}

func state(all []identity.User, u identity.User, now time.Time) string {
	switch {
	case identity.Old(all, u, now):
		return "valid, old key"
	case !u.Revoked.IsZero():
		return "revoked"
	}
	return validity(u.Valid(now), u.Expires)
}

// validity says until when something that expires is valid; zero = without end.
func validity(valid bool, until time.Time) string {
	switch {
	case !valid:
		return "expired"
	case !until.IsZero():
		return "until " + until.Local().Format(time.DateTime)
	}
	return "valid"
}
