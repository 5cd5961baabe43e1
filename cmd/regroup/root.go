package main

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	gatewayclient "github.com/regroup-io/regroup/client"
	"github.com/regroup-io/regroup/cmd/regroup/auth"
	"github.com/regroup-io/regroup/cmd/regroup/checkpoint"
	"github.com/regroup-io/regroup/cmd/regroup/contexts"
	"github.com/regroup-io/regroup/cmd/regroup/doctor"
	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/job"
	"github.com/regroup-io/regroup/cmd/regroup/node"
	"github.com/regroup-io/regroup/cmd/regroup/run"
	"github.com/regroup-io/regroup/cmd/regroup/serve"
	"github.com/regroup-io/regroup/cmd/regroup/torchrun"
	"github.com/regroup-io/regroup/cmd/regroup/webhook"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/services/cluster"
)

func newRoot() (*cobra.Command, error) {
	config, err := boot.Load()
	agent, err1 := serve.LoadAgent()
	discovery, err2 := serve.LoadDiscovery()
	gateway, err3 := serve.LoadGateway()
	if err := errors.Join(err, err1, err2, err3); err != nil {
		return nil, errcode.Errorf(errcode.Invalid, "%w", err)
	}
	config.Version = released().Version
	root := &cobra.Command{
		Use:     "regroup",
		Version: versionText(),
		Short:   "Elastic distributed training that survives anything",
		Example: command.Examples("regroup run --workers 2:4 -- python train.py", "regroup demo", "regroup status"),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	config.Flags(root.PersistentFlags())
	command.GlobalFlags(root.PersistentFlags())
	contexts.Flags(root.PersistentFlags())
	env := environment(&config)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if within(cmd, "context", "completion", "version", "docs", "help", "guard", "service") {
			return nil // commands that repair the settings, or do not need them
		}
		return contexts.Apply(cmd, env.Getenv)
	}
	root.AddCommand(job.Commands(env)...)
	root.AddCommand(
		run.SubmitCommand(env, &config), run.PlanCommand(env), node.Command(env), checkpoint.Command(env),
		webhook.Command(env, func(url string) (*gatewayclient.Client, error) {
			return gatewayclient.New(gatewayclient.Options{URL: url, Token: gateway.Token, StateDir: config.StateDir, Patience: -1})
		}, gateway.URL),
		run.Command(env, &config, agent, discovery, gateway), run.HorovodCommand(env, &config, agent, discovery, gateway), torchrun.Command(env, &config, agent, gateway),
		serve.UpCommand(&config, &agent, &discovery, &gateway), serve.Command(&config, &discovery, &gateway), serve.DashboardCommand(&config, &gateway), serve.AgentCommand(&config, &agent),
		serve.InitCommand(&config), serve.BackupCommand(&config), serve.RestoreCommand(&config), serve.HealthCommand(&config), serve.GuardCommand(), contexts.Command(env), contexts.ConfigCommand(env), auth.Command(env, &config),
		doctor.Command(env, &config, func() string { return cmp.Or(agent.Advertise, serve.Advertised(config.Server)) }, released().Version),
		run.DemoCommand(env, &config), versionCommand(env.Out), manualCommand(env, generateCommand(), manCommand(root)), serviceCommand(), completionCommand(root, env.Out), command.FlagsTopic(), command.ExamplesTopic(),
	)
	_ = root.RegisterFlagCompletionFunc("context", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		f, err := contexts.Load(env.Getenv)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return f.Names(), cobra.ShellCompDirectiveNoFileComp
	}) // fails only when called twice
	root.InitDefaultHelpCmd()
	arrange(root)
	return command.WithUsage(root), nil
}

func arrange(root *cobra.Command) {
	for _, g := range []struct{ title, names string }{
		{"Run a job", "run torchrun horovodrun submit plan demo"},
		{"Look at jobs", "ls top status explain logs events metrics timeline trace verify wait dashboard"},
		{"Change jobs", "scale close stop rm"},
		{"Operate", "up agent serve service init backup restore auth node checkpoint webhook health doctor"},
		{"More", "docs context config completion version help"},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, name := range strings.Fields(g.names) {
			if cmd, _, err := root.Find([]string{name}); err == nil {
				cmd.GroupID = g.title
			}
		}
	}
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Short, help.Example = "Show the help of a command, or of the flags that all have", command.Examples("regroup help run", "regroup help node drain", "regroup help flags")
		help.Use, help.Long, help.Run, help.RunE = "help [COMMAND]", "", nil, command.Help
	}
}

// within reports whether cmd is one of the root's commands with these names, or below one.
func within(cmd *cobra.Command, names ...string) bool {
	for ; cmd.HasParent(); cmd = cmd.Parent() {
		if !cmd.Parent().HasParent() {
			return slices.Contains(names, cmd.Name())
		}
	}
	return false
}

func environment(c *boot.Config) command.Env {
	width, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || width < 1 {
		width = 100
	}
	return command.Env{
		Connect: func(ctx context.Context, within time.Duration, say func(string)) ([]cluster.Server, func(), error) {
			own := *c
			own.Wait = within
			return serve.Attach(ctx, own, say)
		},
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		IsTerminal: boot.IsTerminal(os.Stdout), ErrIsTerminal: boot.IsTerminal(os.Stderr), Width: width,
		Getenv: os.Getenv, Now: time.Now, Source: source(),
	}
}

// source is the CloudEvents source of this process's commands, which names the user.
func source() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return sourceOf(name)
}

// sourceOf returns the source that names a user: a URI-reference, whatever the name.
func sourceOf(name string) string { return (&url.URL{Path: "/client/" + name}).String() }
