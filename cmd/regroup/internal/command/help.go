package command

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/events/errcode"
)

const helpColumns = 80

const headingKey = "regroup_heading"

// Examples formats the examples of a command, one command line each.
func Examples(lines ...string) string { return "  " + strings.Join(lines, "\n  ") }

// Group puts the flags that add adds to fs under a heading.
func Group(fs *pflag.FlagSet, heading string, add func()) {
	before := map[string]bool{}
	fs.VisitAll(func(f *pflag.Flag) { before[f.Name] = true })
	add()
	fs.VisitAll(func(f *pflag.Flag) {
		if !before[f.Name] {
			_ = fs.SetAnnotation(f.Name, headingKey, []string{heading}) // the flag exists
		}
	})
}

// FlagsTopic is the page of the help about the flags that every command has.
func FlagsTopic() *cobra.Command {
	return &cobra.Command{
		Use: "flags", Short: "The flags that every command has",
		Long:    "They stand before or after the name of a command. A flag wins over its variable, the variable over the context, and the context over the file of settings: regroup config view --origin says where each comes from.",
		Example: Examples("regroup ls --server nats://broker:4222 --timeout 30s", "regroup help flags"),
	}
}

// ExamplesTopic is the page of the help that has the examples of all commands.
func ExamplesTopic() *cobra.Command {
	return &cobra.Command{
		Use: "examples", Short: "The examples of all commands on one page",
		Long: "What one can do, command by command.", Example: Examples("regroup help examples", "regroup help examples | grep kill"),
	}
}

// allExamples are those of the commands under cmd, each with the line that says what it does.
func allExamples(cmd *cobra.Command) string {
	var b strings.Builder
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Runnable() && c.Example != "" {
			fmt.Fprintf(&b, "\n# %s\n%s\n", c.Short, c.Example)
		}
		b.WriteString(allExamples(c))
	}
	return b.String()
}

// isTopic reports whether cmd is a page of the help and no command.
func isTopic(cmd *cobra.Command) bool {
	return cmd.HasParent() && !cmd.Runnable() && !cmd.HasSubCommands()
}

// Help is the body of the help command: it shows the page of what its arguments name.
func Help(cmd *cobra.Command, args []string) error {
	of, rest, err := cmd.Root().Find(args)
	if err != nil {
		return errcode.Errorf(errcode.Invalid, "%w", err)
	}
	if of.HasSubCommands() && len(rest) > 0 {
		return unknownVerb(of, rest)
	}
	of.InitDefaultHelpFlag()
	if isTopic(of) && of.Name() == "examples" {
		_, err := io.WriteString(cmd.OutOrStdout(), strings.TrimPrefix(allExamples(cmd.Root()), "\n"))
		return err
	}
	return of.Help()
}

// writeHelp writes the help of a command: usage, what it does in a line, the description, its
// commands, examples, flags.
func writeHelp(w io.Writer, cmd *cobra.Command) error {
	var b strings.Builder
	if isTopic(cmd) {
		fmt.Fprintf(&b, "Usage: %s help %s\n", cmd.Root().Name(), cmd.Name())
	} else {
		cmd.InitDefaultHelpFlag()
		fmt.Fprintf(&b, "Usage: %s\n", useLine(cmd))
	}
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(&b, "Aliases: %s\n", strings.Join(cmd.Aliases, ", "))
	}
	fmt.Fprintf(&b, "\n%s.\n", cmd.Short)
	if cmd.Long != "" {
		fmt.Fprintf(&b, "\n%s\n", Wrap(cmd.Long))
	}
	commands(&b, cmd)
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", strings.TrimRight(cmd.Example, "\n"))
	}
	flags(&b, cmd)
	if !isTopic(cmd) {
		fmt.Fprintf(&b, "\nFlags of every command: %s help flags\n", cmd.Root().Name())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "More about a command: %s COMMAND --help\n", cmd.CommandPath())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func useLine(cmd *cobra.Command) string {
	if _, group := cmd.Annotations[onlyVerbs]; group {
		return cmd.CommandPath() + " COMMAND [flags]"
	}
	return cmd.UseLine()
}

// commands writes the sub-commands, by the groups that cmd has made for them.
func commands(b *strings.Builder, cmd *cobra.Command) {
	write := func(heading, group string) {
		var of []*cobra.Command
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() && c.GroupID == group {
				of = append(of, c)
			}
		}
		if len(of) == 0 {
			return
		}
		fmt.Fprintf(b, "\n%s:\n", heading)
		for _, c := range of {
			fmt.Fprintf(b, "  %-*s  %s\n", cmd.NamePadding(), c.Name(), c.Short)
		}
	}
	for _, g := range cmd.Groups() {
		write(g.Title, g.ID)
	}
	write("Commands", "")
}

// flags writes the command's own flags, then those under headings, then those of the commands above
// it, without those that every command has; these are the flags of a topic.
func flags(b *strings.Builder, cmd *cobra.Command) {
	var headings []string
	sets := map[string]*pflag.FlagSet{}
	add := func(heading string, f *pflag.Flag) {
		if f.Hidden {
			return
		}
		if sets[heading] == nil {
			headings = append(headings, heading)
			sets[heading] = pflag.NewFlagSet(heading, pflag.ContinueOnError)
			sets[heading].SortFlags = false
		}
		sets[heading].AddFlag(f)
	}
	global := cmd.Root().PersistentFlags()
	local := func(grouped bool) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if global.Lookup(f.Name) == f {
				return
			}
			heading := "Flags"
			if h := f.Annotations[headingKey]; len(h) > 0 {
				heading = h[0]
			}
			if grouped == (heading != "Flags") {
				add(heading, f)
			}
		})
	}
	if !isTopic(cmd) {
		local(false)
		local(true)
	}
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		switch every := global.Lookup(f.Name) == f; {
		case isTopic(cmd):
			add("Flags", f)
		case !every:
			add("Flags of all of "+cmd.Parent().CommandPath(), f)
		}
	})
	for _, h := range headings {
		fmt.Fprintf(b, "\n%s:\n%s", h, sets[h].FlagUsagesWrapped(helpColumns))
	}
}

// Wrap breaks paragraphs into lines of at most 80 columns. Paragraphs are separated by an empty
// line; one whose lines begin with a space is left unchanged.
func Wrap(text string) string {
	paragraphs := strings.Split(strings.TrimSpace(text), "\n\n")
	for i, p := range paragraphs {
		if !strings.HasPrefix(p, " ") {
			paragraphs[i] = fill(strings.Fields(p))
		}
	}
	return strings.Join(slices.DeleteFunc(paragraphs, func(p string) bool { return p == "" }), "\n\n")
}

func fill(words []string) string {
	var b strings.Builder
	column := 0
	for _, word := range words {
		n := utf8.RuneCountInString(word)
		switch {
		case column == 0:
		case column+1+n > helpColumns:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}
