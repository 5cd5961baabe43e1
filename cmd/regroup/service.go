package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/deploy/systemd"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
)

// unitProgram is this program in the units.
const unitProgram = "/usr/local/bin/regroup"

// unit is a file for systemd.
type unit struct {
	name string // for users
	file string // in deploy/systemd
	path string // where it belongs
	then string // what to do once it is there
}

// units are the files, by what they start.
func units() []unit {
	started := func(name, file, starts string) unit {
		return unit{name, file, "/etc/systemd/system/" + file, "systemctl daemon-reload && systemctl enable --now " + starts}
	}
	all := []unit{
		started("broker", "regroup-nats.service", "regroup-nats"),
		started("agent", "regroup-agent.service", "regroup-agent"),
		started("gateway", "regroup-gateway.service", "regroup-gateway"),
		{"env", "regroup.env", "/etc/regroup/regroup.env", "chmod 0600 /etc/regroup/regroup.env, and start the units of this machine again"},
	}
	for _, name := range slices.Sorted(slices.Values(events.ServiceNames())) {
		all = append(all, started(name, "regroup@.service", "regroup@"+name))
	}
	return all
}

func serviceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "service", Short: "Print the units of systemd",
		Example: command.Examples("regroup service print agent"),
	}
	var names []string
	for _, u := range units() {
		names = append(names, u.name)
	}
	cmd.AddCommand(&cobra.Command{
		Use: "print [UNIT]", Short: "Print a unit of systemd, or all", Args: command.AtMost("UNIT"), ValidArgs: names,
		Long: "Prints the unit that starts an agent, the broker (broker), the gateway, which serves HTTP and the dashboard, or a service of the control plane (" + strings.Join(slices.Sorted(slices.Values(events.ServiceNames())), ", ") +
			"), or the file in which all units find their variables (env). Where it belongs is said on stderr. Without a name all are printed, each after its path.",
		Example: command.Examples("regroup service print agent > regroup-agent.service", "regroup service print env | sudo tee /etc/regroup/regroup.env",
			"regroup service print broker | \\\n      sudo tee /etc/systemd/system/regroup-nats.service", "regroup service print"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return printUnits(cmd.OutOrStdout())
			}
			i := slices.IndexFunc(units(), func(u unit) bool { return u.name == args[0] || u.file == args[0] })
			if i < 0 {
				hint := spec.DidYouMean(args[0], names)
				if hint == "" {
					hint = "known are " + strings.Join(names, ", ")
				}
				return errcode.Errorf(errcode.Invalid, "there is no unit %q: %s", args[0], hint)
			}
			u := units()[i]
			text, err := systemd.Files.ReadFile(u.file)
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			if err != nil {
				return errcode.Errorf(errcode.Internal, "%s: %w", u.file, err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "regroup: it belongs at %s; then: %s\n", u.path, u.then)
			if path, err := os.Executable(); err == nil && path != unitProgram && strings.Contains(string(text), unitProgram) {
				fmt.Fprintf(cmd.ErrOrStderr(), "regroup: it starts %s; this program gets there by: install %s %[1]s\n", unitProgram, path)
			}
			return nil
		},
	})
	return cmd
}

// printUnits prints all files as systemctl cat does, each once.
func printUnits(w io.Writer) error {
	done := map[string]bool{}
	for _, u := range units() {
		if done[u.file] {
			continue
		}
		gap := "\n"
		if len(done) == 0 {
			gap = ""
		}
		done[u.file] = true
		text, err := systemd.Files.ReadFile(u.file)
		if err == nil {
			_, err = fmt.Fprintf(w, "%s# %s\n%s", gap, u.path, text)
		}
		if err != nil {
			return errcode.Errorf(errcode.Internal, "%s: %w", u.file, err)
		}
	}
	return nil
}
