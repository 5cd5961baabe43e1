package contexts

import (
	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/internal/escape"
)

// ConfigCommand returns regroup config with its verbs.
func ConfigCommand(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Show the settings that hold",
		Long:    "Shows what holds after flags, variables, the context and the settings file. How they are changed: regroup context.",
		Example: command.Examples("regroup config view", "regroup config view --origin", "regroup config view --context lab"),
	}
	cmd.AddCommand(view(env))
	return command.WithUsage(cmd)
}

// held is a setting and where its value comes from.
type held struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	From    string `json:"from"`
}

func view(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "view", Short: "Show the settings, and where each comes from", Args: command.Exactly(),
		Long: "Shows each setting that a context can have, as a command with the same flags and variables would use it; with --origin also the flag, variable, or line of a file " +
			"that says so. Passwords are not shown.",
		Example: command.Examples("regroup config view", "regroup config view --origin", "regroup config view --context lab -o json"),
	}
	origin := cmd.Flags().Bool("origin", false, "show where each value comes from; -o json has it always")
	form := command.Reading(cmd, command.Table, command.JSON, command.YAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		e, err := effectiveFor(cmd, env.Getenv)
		if err != nil {
			return err
		}
		head := []string{"SETTING", "VALUE", "FROM"}
		if !*origin {
			head = head[:2]
		}
		return command.Print(env, cmd, form, e.held(), command.Columns[held]{Header: head, Row: func(_ screen.Palette, h held) []string {
			return []string{h.Setting, escape.Text(h.Value), escape.Text(h.From)}[:len(head)]
		}})
	}
	return cmd
}

// held lists the context and all settings.
func (e *effective) held() []held {
	name, from := e.context()
	all := []held{{"context", name, from}}
	var used Settings
	values := used.Values()
	origins := map[string]string{}
	for i, v := range e.settings.Values() {
		*values[i].Text, origins[v.Name] = e.of(v)
	}
	used = used.Shown()
	for _, v := range used.Values() {
		h := held{v.Name, *v.Text, origins[v.Name]}
		if h.From == "" {
			h.From = "default"
			if f := e.cmd.Flag(v.Flag); f != nil {
				h.Value = f.DefValue
			}
		}
		all = append(all, h)
	}
	return all
}
