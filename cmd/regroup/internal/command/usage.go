package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/english"
)

// WithUsage gives a command and its sub-commands the common help and usage errors: the error alone,
// with code Invalid and a suggestion. It returns cmd.
func WithUsage(cmd *cobra.Command) *cobra.Command {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetFlagErrorFunc(flagError)
	if cmd.HasSubCommands() && cmd.RunE == nil && cmd.Run == nil {
		cmd.Args = cobra.ArbitraryArgs // otherwise cobra prints the help and succeeds
		cmd.RunE = unknownVerb
		cmd.Annotations = map[string]string{onlyVerbs: ""}
	}
	_, group := cmd.Annotations[onlyVerbs]
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		if words, ctx := cmd.Flags().Args(), cmd.Context(); group && len(words) > 0 && ctx != nil {
			if failed, ok := ctx.Value(helpFailed{}).(*error); ok {
				*failed = unknownVerb(cmd, words)
				return
			}
		}
		cobra.CheckErr(writeHelp(cmd.OutOrStdout(), cmd))
	})
	cmd.SetUsageFunc(func(cmd *cobra.Command) error { return writeHelp(cmd.OutOrStderr(), cmd) })
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { completeNoFiles(cmd, f) })
	for _, sub := range cmd.Commands() {
		WithUsage(sub)
	}
	return cmd
}

// onlyVerbs is the annotation of a command that does nothing without one of its sub-commands.
const onlyVerbs = "only-verbs"

// helpFailed is the key of the context of the place for the error of a help.
type helpFailed struct{}

// Execute runs a command line. That it asks for the help of what does not exist is an error too,
// for which cobra has no place.
func Execute(ctx context.Context, root *cobra.Command) error {
	var failed error
	err := root.ExecuteContext(context.WithValue(ctx, helpFailed{}, &failed))
	return errors.Join(err, failed)
}

// values completes flags that take one of a few words, by their names.
var values = map[string][]string{
	"recovery": {"restart", "in-process"}, "store": {"agent", "rank0"}, "exit-code-from": {"worker"},
	"color": {"auto", "always", "never"}, "log-level": {"debug", "info", "warn", "error"}, "form": {"cloudevent", "slack", "teams", "discord"}, "handshake": {"optional", "required", "off"},
}

// completeNoFiles keeps a shell from completing the value of a flag with the names of files, unless
// it is one.
func completeNoFiles(cmd *cobra.Command, f *pflag.Flag) {
	if _, has := cmd.GetFlagCompletionFunc(f.Name); !has && values[f.Name] != nil {
		_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values[f.Name], cobra.ShellCompDirectiveNoFileComp)) // fails only when called twice
		return
	}
	value, usage := pflag.UnquoteUsage(f)
	text := strings.ToLower(f.Name + " " + value + " " + usage)
	for _, word := range []string{"file", "dir", "folder", "path", "python", "script", "creds", "socket"} {
		if strings.Contains(text, word) {
			return
		}
	}
	if _, has := cmd.GetFlagCompletionFunc(f.Name); !has {
		_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions) // fails only when called twice
	}
}

// elsewhere has what other tools call differently, by the word, and by the command and the flag.
var elsewhere = map[string]string{
	"mpirun":          "regroup run --workers N -- PROGRAM starts N ranks",
	"status --watch":  "regroup top is live, and regroup events JOB -f follows what happens",
	"status --follow": "regroup top is live, and regroup events JOB -f follows what happens",
	"ls --watch":      "regroup top is live",
	"node ls --watch": "regroup top is live",
}

// flagError explains a flag that is not known. After a word that is no command that word is the
// mistake: the flag is one of the command that was meant.
func flagError(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return unknownVerb(cmd, words)
	}
	var unknown *pflag.NotExistError
	hint := ""
	if errors.As(err, &unknown) && len(unknown.GetSpecifiedName()) > 1 {
		var known []string
		add := func(f *pflag.Flag) { known = append(known, f.Name) }
		cmd.Flags().VisitAll(add)
		cmd.InheritedFlags().VisitAll(add)
		_, path, _ := strings.Cut(cmd.CommandPath(), " ")
		if here := elsewhere[path+" --"+unknown.GetSpecifiedName()]; here != "" {
			hint = "; " + here
		} else if w := spec.Nearest(unknown.GetSpecifiedName(), known); w != "" {
			hint = fmt.Sprintf("; did you mean --%s?", w)
		}
	}
	var wrong *pflag.InvalidValueError
	if errors.As(err, &wrong) {
		switch wrong.GetFlag().Value.Type() {
		case "duration":
			hint = ": write 30s, 5m or 1h"
		case "bool":
			hint = ": write true or false"
		case "int", "uint64", "uint":
			hint = ": write a whole number"
		}
		if hint != "" {
			return errcode.Errorf(errcode.Invalid, "--%s %q%s (see %s --help)", wrong.GetFlag().Name, wrong.GetValue(), hint, cmd.CommandPath())
		}
	}
	return errcode.Errorf(errcode.Invalid, "%w%s (see %s --help)", err, hint, cmd.CommandPath())
}

func unknownVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	var known, names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known, names = append(append(known, c.Name()), c.Aliases...), append(names, c.Name())
		}
	}
	hint := elsewhere[args[0]]
	if hint == "" {
		hint = spec.DidYouMean(args[0], known)
	}
	if hint == "" {
		if hint = "known are " + strings.Join(names, ", "); len(names) > 10 {
			hint = "see " + cmd.CommandPath() + " --help"
		}
	}
	return errcode.Errorf(errcode.Invalid, "there is no %s %s: %s", cmd.CommandPath(), args[0], hint)
}

// Exactly requires these arguments, named as in the usage line.
func Exactly(names ...string) cobra.PositionalArgs { return Between(len(names), names...) }

// AtMost allows one argument of this name, or none.
func AtMost(name string) cobra.PositionalArgs { return Between(0, name) }

// Between requires these arguments; all but the last least of them may be omitted.
func Between(least int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= len(names) {
			return nil
		}
		want := "no argument"
		if len(names) > 0 {
			want = strings.Join(names, " ")
			if most := len(names) - least; most > 0 {
				want = strings.TrimSpace("[" + strings.Join(names[:most], " ") + "] " + strings.Join(names[most:], " "))
			}
		}
		return errcode.Errorf(errcode.Invalid, "%s wants %s, got %s (see %s --help)", cmd.CommandPath(), want, english.Plural(len(args), "argument"), cmd.CommandPath())
	}
}
