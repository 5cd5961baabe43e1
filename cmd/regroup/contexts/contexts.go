// Package contexts implements the commands for contexts, the named sets of settings in the user's
// settings file, and applies the settings to the flags of all commands.
package contexts

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/escape"
)

// Command returns regroup context with its verbs.
func Command(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "context [-]", Aliases: []string{"ctx"}, Short: "Keep how clusters are reached under names",
		Long: "A context says how a cluster is reached, as whom, and defaults for the output. With - the one that was selected before is selected again. Contexts are kept in config.yaml in $XDG_CONFIG_HOME/regroup or ~/.config/regroup, and for all users of a machine in /etc/regroup/config.yaml. A " +
			"flag wins over the environment, that over the context, and that over the section settings of the file.",
		Example: command.Examples("regroup context add prod --server nats://broker:4222 --creds me.creds", "regroup context select prod",
			"regroup ls --context nats:prod"),
	}
	cmd.AddCommand(add(env), list(env), show(env), choose(env), remove(env))
	for _, c := range cmd.Commands() {
		if strings.Contains(c.Use, "NAME") && c.Name() != "add" {
			c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
				f, err := Load(env.Getenv)
				if err != nil || len(args) > 0 {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return f.Names(), cobra.ShellCompDirectiveNoFileComp
			}
		}
	}
	command.WithUsage(cmd)
	verbs := cmd.RunE // what it says of words that are none
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] != "-" {
			return verbs(cmd, args)
		}
		return onFile(env, func(_ *cobra.Command, f *File, _ []string) error { return selected(env, f, "-") })(cmd, args)
	}
	return cmd
}

// onFile returns the body of a command that changes or reads the settings file.
func onFile(env command.Env, do func(cmd *cobra.Command, f *File, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		f, err := Load(env.Getenv)
		if err != nil {
			return err
		}
		return do(cmd, f, args)
	}
}

func add(env command.Env) *cobra.Command {
	var s Settings
	var token string
	cmd := &cobra.Command{
		Use: "add NAME", Aliases: []string{"save"}, Short: "Add or replace a context", Args: command.Exactly("NAME"),
		Long: "Keeps what the flags say under a name; a context of this name is replaced. Paths are kept as absolute ones. With --join the address of the brokers, their authority " +
			"and the credentials are those of a join token, and kept beside the settings file.",
		Example: command.Examples("regroup context add prod --server nats://broker:4222 --select",
			"regroup context add prod --server tls://broker:4222 --creds me.creds \\\n      --tlsca ca.pem --timeout 30s", "regroup context add lab --server nats://lab:4222 --output json",
			"regroup context add lab --join @ada.token --select"),
	}
	chosen := cmd.Flags().Bool("select", false, "select it too")
	cmd.Flags().StringVar(&s.Description, "description", "", "what it is, for people")
	cmd.Flags().StringVar(&s.Output, "output", "", "form of -o for commands that have it")
	cmd.Flags().StringVar(&s.Gateway, "gateway", "", "URL of the gateway that regroup dashboard asks")
	cmd.Flags().StringVar(&token, "join", "", "join `TOKEN` of regroup auth issue client NAME --token, @FILE that has it, or - for standard input")
	cmd.RunE = onFile(env, func(cmd *cobra.Command, f *File, args []string) error {
		for _, v := range s.Values() {
			if x := cmd.Flag(v.Flag); x != nil && x.Changed {
				*v.Text = x.Value.String()
			}
		}
		s, err := s.Absolute()
		if err != nil {
			return err
		}
		if err := f.Put(args[0], s); err != nil {
			return err
		}
		if token != "" {
			if err := join(cmd, env, f, args[0], token, s); err != nil {
				return err
			}
		}
		if *chosen {
			if err := f.Select(env.Getenv, args[0]); err != nil {
				return err
			}
		}
		if err := f.Save(); err != nil {
			return err
		}
		fmt.Fprintf(env.Err, "context %s is kept\n", args[0])
		if *chosen {
			fmt.Fprintf(env.Err, "context %s is selected\n", args[0])
		}
		return nil
	})
	return cmd
}

type listed struct {
	Name     string `json:"name"`
	Selected bool   `json:"selected"`
	Settings
}

func list(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List contexts", Args: command.Exactly(),
		Long:    "Lists the contexts; the selected one has a star. Passwords are not shown.",
		Example: command.Examples("regroup context ls", "regroup context ls -o json"),
	}
	form := command.Reading(cmd, command.Table, command.JSON, command.YAML, command.Name)
	cmd.RunE = onFile(env, func(cmd *cobra.Command, f *File, _ []string) error {
		all := []listed{}
		for _, name := range f.Names() {
			s, err := f.Context(env.Getenv, name)
			if err != nil {
				return err
			}
			all = append(all, listed{name, name == f.InUse(), s.Shown()})
		}
		return command.Print(env, cmd, form, all, command.Columns[listed]{
			Name: func(c listed) string { return c.Name }, None: "no contexts; keep one: regroup context add NAME --server URL", Header: []string{" ", "NAME", "SERVER", "DESCRIPTION"},
			Row: func(_ screen.Palette, c listed) []string {
				star := " "
				if c.Selected {
					star = "*"
				}
				return []string{star, c.Name, escape.Text(c.Server), escape.Text(c.Description)}
			},
		})
	})
	return cmd
}

func show(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show [NAME]", Aliases: []string{"info"}, Short: "Show a context", Args: command.AtMost("NAME"),
		Long:    "Shows what holds in a context, without a name in the selected one. Passwords are not shown.",
		Example: command.Examples("regroup context show", "regroup context show prod -o json", "regroup context show nats:prod"),
	}
	form := command.Reading(cmd, command.YAML, command.JSON)
	cmd.RunE = onFile(env, func(_ *cobra.Command, f *File, args []string) error {
		name := f.InUse()
		if len(args) > 0 {
			name = args[0]
		}
		s, err := f.Resolve(env.Getenv, name)
		if err != nil {
			return err
		}
		_, err = form.Write(env.Out, listed{name, name == f.InUse() && name != "", s.Shown()})
		return err
	})
	return cmd
}

func choose(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "select NAME | - | --none", Short: "Select the context that holds where none is named",
		Long:    "Selects a context, with - the one that was selected before, or with --none none.",
		Example: command.Examples("regroup context select prod", "regroup context select nats:prod", "regroup context select -", "regroup context select --none"),
	}
	none := cmd.Flags().Bool("none", false, "no context is selected")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *none {
			return command.Exactly()(cmd, args)
		}
		return command.Exactly("NAME")(cmd, args)
	}
	cmd.RunE = onFile(env, func(_ *cobra.Command, f *File, args []string) error {
		return selected(env, f, strings.Join(args, ""))
	})
	return cmd
}

// selected selects a context as File.Select has it, keeps that, and says it.
func selected(env command.Env, f *File, name string) error {
	if err := f.Select(env.Getenv, name); err != nil {
		return err
	}
	if err := f.Save(); err != nil {
		return err
	}
	if f.Selected == "" {
		fmt.Fprintln(env.Err, "no context is selected")
	} else {
		fmt.Fprintf(env.Err, "context %s is selected\n", f.Selected)
	}
	return nil
}

func remove(env command.Env) *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Aliases: []string{"remove"}, Short: "Remove a context", Args: command.Exactly("NAME"),
		Long:    "Removes a context, and the credentials that it has from a join token. If it is the selected one, none is selected then.",
		Example: command.Examples("regroup context rm lab"),
		RunE: onFile(env, func(_ *cobra.Command, f *File, args []string) error {
			if strings.Contains(args[0], ":") {
				return errcode.Errorf(errcode.Invalid, "%s is a context of another program", args[0])
			}
			if _, err := f.Context(env.Getenv, args[0]); err != nil {
				return err
			}
			if _, own := f.Contexts[args[0]]; !own {
				return errcode.Errorf(errcode.Conflict, "%s is a context of all users of this machine: it is in %s", args[0], machineFile)
			}
			delete(f.Contexts, args[0])
			wasSelected := f.Selected == args[0]
			if wasSelected {
				f.Selected = ""
			}
			if f.Previous == args[0] {
				f.Previous = ""
			}
			if err := errors.Join(f.Save(), os.RemoveAll(f.Folder(args[0]))); err != nil {
				return err
			}
			fmt.Fprintf(env.Err, "context %s is removed\n", args[0])
			if wasSelected {
				fmt.Fprintln(env.Err, "no context is selected")
			}
			return nil
		}),
	}
}
