package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/regroup-io/regroup/cmd/regroup/demo"
	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/job"
	"github.com/regroup-io/regroup/cmd/regroup/node"
	"github.com/regroup-io/regroup/cmd/regroup/run"
	"github.com/regroup-io/regroup/cmd/regroup/serve"
	"github.com/regroup-io/regroup/cmd/regroup/submit"
	"github.com/regroup-io/regroup/events"
)

func newRoot() (*cobra.Command, error) {
	config, err := boot.Load()
	if err != nil {
		return nil, events.Errorf(events.Invalid, "%w", err)
	}
	agent, err := serve.LoadAgent()
	if err != nil {
		return nil, events.Errorf(events.Invalid, "%w", err)
	}
	discovery, err := serve.LoadDiscovery()
	if err != nil {
		return nil, events.Errorf(events.Invalid, "%w", err)
	}
	root := &cobra.Command{
		Use:   "regroup",
		Short: "Elastic distributed training that survives anything",
		Example: `  regroup run --workers 2:4 -- python train.py
  regroup demo
  regroup status JOB`,
	}
	config.Flags(root.PersistentFlags())
	command.GlobalFlags(root.PersistentFlags())
	env := environment(&config)
	root.AddCommand(job.Commands(env)...)
	root.AddCommand(
		submit.Command(env), node.Command(env),
		run.Command(env, &config, agent, discovery),
		serve.UpCommand(&config, &agent, &discovery), serve.Command(&config, &discovery), serve.AgentCommand(&config, &agent),
		serve.InitCommand(&config), serve.HealthCommand(&config),
		demo.Command(env, &config), versionCommand(), docsCommand(),
	)
	return command.Polish(root), nil
}

func environment(c *boot.Config) command.Env {
	width, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		width = 0
	}
	return command.Env{
		Connect: func(ctx context.Context) (events.Ports, func(), error) { return serve.Attach(ctx, *c) },
		In:      os.Stdin, Out: os.Stdout, Err: os.Stderr,
		IsTerminal: boot.IsTerminal(os.Stdout), ErrIsTerminal: boot.IsTerminal(os.Stderr), Width: width,
		Getenv: os.Getenv, Now: time.Now, Source: source(),
	}
}

// source names the user in the commands that this process publishes.
func source() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return "/client/" + name
}

func versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Example: `  regroup version
  regroup version --json
  regroup version | cut -d' ' -f2`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{
					"version": version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
				})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "regroup %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return cmd
}

// docsCommand prints documents that are made from code; `make generate` keeps them.
func docsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "docs", Short: "Print documentation that is made from code", Hidden: true}
	cmd.AddCommand(&cobra.Command{
		Use: "events", Short: "Print the catalogue of events as Markdown", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), events.CatalogMarkdown())
			return err
		},
	})
	return cmd
}
