package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/kelseyhightower/envconfig"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/jobflags"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/cmd/regroup/serve"
	"github.com/regroup-io/regroup/cmd/regroup/torchrun"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/discovery"
)

func plain(page func() string) func() (string, error) {
	return func() (string, error) { return page(), nil }
}

// pages are the generated documents; `make generate` writes them to docs/.
func pages() map[string]func() (string, error) {
	return map[string]func() (string, error){
		"events": plain(events.CatalogMarkdown), "limits": plain(limits.Markdown), "environment": environmentPage,
	}
}

// generateCommand prints what is made from code, for make generate.
func generateCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "generate", Short: "Print documentation that is made from code", Hidden: true, Example: command.Examples("regroup docs generate events > docs/events.md")}
	add := func(name, short, into string, page func() (string, error)) {
		cmd.AddCommand(&cobra.Command{
			Use: name, Short: short, Args: cobra.NoArgs, Example: command.Examples("regroup docs generate " + name + " " + into),
			RunE: func(cmd *cobra.Command, _ []string) error {
				text, err := page()
				if err == nil {
					_, err = fmt.Fprint(cmd.OutOrStdout(), text)
				}
				return err
			},
		})
	}
	for name, page := range pages() {
		add(name, "Print docs/"+name+".md", "> docs/"+name+".md", page)
	}
	add("access", "Print the table of permissions as Markdown", ">> docs/security.md", plain(access.Markdown))
	add("launchers", "Print the table of other launchers' flags as Markdown", ">> docs/launchers.md", plain(jobflags.Launchers))
	add("torchrun", "Print the table of torchrun's flags as Markdown", ">> docs/torchrun.md", plain(torchrun.Table))
	return cmd
}

const environmentIntro = `# Environment

Generated from the code by ` + "`make generate`" + `. Flags of the same meaning win over variables. Times are written as 500ms, 30s or 1h; times and sizes
without a unit say theirs.
`

func environmentPage() (string, error) {
	var b strings.Builder
	b.WriteString(environmentIntro)
	for _, s := range []struct {
		title, prefix string
		config        any
	}{
		{"Every command", boot.Prefix, &boot.Config{}},
		{"`agent`, `up` and `run`", boot.Prefix + "_agent", &serve.AgentConfig{}},
		{"Discovery: `serve discovery`, `up` and `run`", boot.Prefix + "_discovery", &discovery.Config{}},
		{"The gateway: `serve gateway`, `up --dashboard` and `run --dashboard`", boot.Prefix + "_gateway", &serve.GatewayConfig{}},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| variable | type | default | what |\n|---|---|---|---|\n", s.title)
		var rows bytes.Buffer
		if err := envconfig.Usagef(s.prefix, s.config, &rows, "{{range .}}{{usage_key .}}\t{{usage_type .}}\t{{usage_default .}}\t{{usage_description .}}\n{{end}}"); err != nil {
			return "", fmt.Errorf("environment of %s: %w", s.title, err)
		}
		for line := range strings.Lines(rows.String()) {
			cells := strings.Split(strings.TrimRight(line, "\n"), "\t")
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", cells[0], strings.ToLower(cells[1]), code(cells[2]), cells[3])
		}
	}
	b.WriteString("\n## Flags of commands for people\n\nThey may also stand in a context or in the settings file, see [cli.md](cli.md).\n\n| variable | type | default | what |\n|---|---|---|---|\n")
	for _, v := range [][4]string{
		{"REGROUP_CONTEXT", "string", "", "name of the context to use, nats:NAME for one of the NATS command line; empty = the selected one"},
		{"REGROUP_TIMEOUT", "duration", cluster.DefaultAnswerWithin.String(), "how long to wait for a server, and for the answer to a command"},
		{"REGROUP_OUTPUT", "string", "", "form of the output, of commands that have it"},
		{"REGROUP_COLOR", "string", screen.Auto, "auto, always or never"},
	} {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", v[0], v[1], code(v[2]), v[3])
	}
	b.WriteString("\nAlso `TRACEPARENT`, the trace that a command is part of; `NO_COLOR`, `CLICOLOR_FORCE`, `TERM`; `XDG_STATE_HOME`, `XDG_RUNTIME_DIR`; `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID` of systemd, which workers do not get; and those of OpenTelemetry, `OTEL_*`. `REGROUP_BINARY` is the path of this program for torchrun's own agents ([torchrun.md](torchrun.md#stock-agents)).\n")
	b.WriteString("\n## Settings of workers\n\nThey are set in the job (`--env NAME=VALUE`) or in the shell of `run` or of the agent; the job's win. All other `REGROUP_` variables are kept from workers.\n\n| variable | default | what |\n|---|---|---|\n")
	for _, v := range spec.WorkerSettings {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.Name, code(v.Default), v.What)
	}
	b.WriteString("\n## Set by the agent for each worker\n\nA job that sets one of them is refused.\n\n| variable | what |\n|---|---|\n")
	for _, v := range spec.AgentVariables {
		fmt.Fprintf(&b, "| `%s` | %s |\n", v.Name, v.What)
	}
	b.WriteString("\n## Set by the agent unless the job or its own environment sets them\n\n| variable | value | what |\n|---|---|---|\n")
	for _, v := range spec.DefaultVariables {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.Name, code(v.Default), v.What)
	}
	return b.String(), nil
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func manCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the manual pages", Args: command.Exactly("DIR"),
		Long:    "Writes a manual page for each command into a folder. Where SOURCE_DATE_EPOCH is set, the pages are of that date.",
		Example: command.Examples("regroup docs man ~/.local/share/man/man1", "regroup docs man . && man ./regroup-run.1"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // manual pages are readable by all users
				return fmt.Errorf("manual pages: %w", err)
			}
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "regroup " + released().Version, Manual: "Regroup"}, args[0])
		},
	}
}
