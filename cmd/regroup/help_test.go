package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/events/errcode"
)

// sections of a help text, in their order; those in brackets may be missing.
var sections = []string{"Usage: ", "[Aliases: ", "[Commands", "Examples:", "Flags:", "[Flags of all of ", "[Flags of every command: regroup help flags\n", "[More about a command: "}

// TestHelp checks that the help of every command has the same layout, fits into 80 columns, and is
// complete.
func TestHelp(t *testing.T) {
	root, err := newRoot()
	if err != nil {
		t.Fatal(err)
	}
	walk(root, func(cmd *cobra.Command) {
		t.Run(strings.ReplaceAll(cmd.CommandPath(), " ", "_"), func(t *testing.T) {
			var out bytes.Buffer
			cmd.SetOut(&out)
			if err := cmd.Help(); err != nil {
				t.Fatal(err)
			}
			layout(t, cmd, out.String())
			described(t, cmd)
		})
	})
}

// TestHelpOfWhatIsThere: the help of what does not exist is an error that names it, and so is a
// flag after a word that is no command.
func TestHelpOfWhatIsThere(t *testing.T) {
	for line, want := range map[string]string{
		"help":              "",
		"help flags":        "",
		"flags":             "",
		"help node drain":   "",
		"help nosuch":       "there is no regroup nosuch: ",
		"help node drian":   `there is no regroup node drian: did you mean "drain"?`,
		"horovodrun --help": "",
		"apply -f job.yaml": "there is no regroup apply: ",
		"apply --file x":    "there is no regroup apply: ",
		"-v apply --file=x": "there is no regroup apply: ",
		"node drian --undo": `there is no regroup node drian: did you mean "drain"?`,
		"nosuch --help":     "there is no regroup nosuch: ",
		"node drian --help": `there is no regroup node drian: did you mean "drain"?`,
		"node drain --help": "",
		"docs cli --help":   "",
		"--serverr x ls":    "unknown flag: --serverr; did you mean --server?",
		"ls --limits 3":     "unknown flag: --limits; did you mean --limit?",
	} {
		root, err := newRoot()
		if err != nil {
			t.Fatal(err)
		}
		root.SetOut(io.Discard)
		root.SetArgs(strings.Fields(line))
		err = command.Execute(t.Context(), root)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || errcode.Of(err) != errcode.Invalid) {
			t.Errorf("regroup %s: %v, want %q", line, err, want)
		}
	}
}

// TestFlagsOfEveryCommand: they have one page, which the help of each command names, and each other
// flag is on the page of its command.
func TestFlagsOfEveryCommand(t *testing.T) {
	root, err := newRoot()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{"help", "flags"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(page, " --"+f.Name+" ") {
			t.Errorf("--%s is not on its page:\n%s", f.Name, page)
		}
	})
	walk(root, func(cmd *cobra.Command) {
		if !cmd.Runnable() && !cmd.HasSubCommands() {
			return
		}
		var help bytes.Buffer
		cmd.SetOut(&help)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(help.String(), "--tlskey") || !strings.Contains(help.String(), "regroup help flags\n") {
			t.Errorf("the help of %s has the flags of every command, or does not name them:\n%s", cmd.CommandPath(), help.String())
		}
		cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
			if root.PersistentFlags().Lookup(f.Name) == nil && !strings.Contains(help.String(), " --"+f.Name+" ") {
				t.Errorf("the help of %s lacks --%s", cmd.CommandPath(), f.Name)
			}
		})
	})
}

// TestGroups: each command that is listed is in one of the groups of the first page.
func TestGroups(t *testing.T) {
	root, err := newRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.GroupID == "" {
			t.Errorf("%s is in no group", c.Name())
		}
	}
}

// TestReadme: the front page has at most 120 lines, and names each command that the help lists,
// under the same heading.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(readme), "\n"); n > 120 {
		t.Errorf("it has %d lines", n)
	}
	root, err := newRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range root.Groups() {
		row := "| " + strings.ToLower(strings.TrimSuffix(g.Title, ":")) + " | "
		var names []string
		for _, c := range root.Commands() {
			if c.IsAvailableCommand() && c.GroupID == g.ID {
				names = append(names, "`"+c.Name()+"`")
			}
		}
		if row += strings.Join(names, ", ") + " |\n"; !strings.Contains(string(readme), row) {
			t.Errorf("README.md lacks the row\n%s", row)
		}
	}
}

func walk(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, c := range cmd.Commands() {
		walk(c, do)
	}
}

func layout(t *testing.T, cmd *cobra.Command, help string) {
	lines := strings.Split(help, "\n")
	for _, l := range lines {
		if n := utf8.RuneCountInString(l); n > 80 || strings.ContainsRune(l, '\t') {
			t.Errorf("%d columns: %q", n, l)
		}
		if l != strings.TrimRight(l, " ") {
			t.Errorf("spaces at the end of %q", l)
		}
	}
	if strings.Contains(help, "\n\n\n") || !strings.HasSuffix(help, "\n") || strings.HasSuffix(help, "\n\n") {
		t.Errorf("empty lines: %q", help)
	}
	at := -1
	for _, s := range sections {
		name, optional := strings.CutPrefix(s, "[")
		i := strings.Index("\n"+help, "\n"+name)
		switch {
		case i < 0 && !optional:
			t.Errorf("there is no %q", name)
		case i >= 0 && i < at:
			t.Errorf("%q is not in its place", name)
		case i >= 0:
			at = i
		}
	}
	if !strings.Contains(help, "\n\n"+cmd.Short+".\n\n") {
		t.Errorf("its line is missing")
	}
}

// described checks that everything has a text in the same style.
func described(t *testing.T, cmd *cobra.Command) {
	if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") || strings.ToUpper(cmd.Short[:1]) != cmd.Short[:1] {
		t.Errorf("its line is %q", cmd.Short)
	}
	own := false
	for l := range strings.Lines(cmd.Example) {
		if !strings.HasPrefix(l, "  ") {
			t.Errorf("an example is not indented: %q", l)
		}
		own = own || strings.Contains(l, cmd.CommandPath()) || strings.Contains(l, "help "+cmd.Name())
	}
	if !own {
		t.Errorf("no example has %s", cmd.CommandPath())
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" || strings.HasSuffix(f.Usage, ".") {
			t.Errorf("--%s is described by %q", f.Name, f.Usage)
		}
	})
}

// TestExamplesOfEveryCommand are on one page.
func TestExamplesOfEveryCommand(t *testing.T) {
	root, err := newRoot()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{"help", "examples"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	walk(root, func(cmd *cobra.Command) {
		if cmd != root && cmd.Runnable() && cmd.IsAvailableCommand() && !strings.Contains(out.String(), cmd.Example) {
			t.Errorf("the page lacks those of %s", cmd.CommandPath())
		}
	})
}

// TestUpServesAsTheGatewayDoes: docs/http.md names flags of a gateway, and both commands that run
// one for a machine have them. Where nothing heeds them they are refused.
func TestUpServesAsTheGatewayDoes(t *testing.T) {
	root, err := newRoot()
	if err != nil {
		t.Fatal(err)
	}
	up, _, err1 := root.Find([]string{"up"})
	gateway, _, err2 := root.Find([]string{"serve", "gateway"})
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	gateway.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if root.PersistentFlags().Lookup(f.Name) == nil && up.Flag(f.Name) == nil {
			t.Errorf("regroup up has no --%s", f.Name)
		}
	})
	root.SetArgs([]string{"up", "--webhooks-private"})
	if err := command.Execute(t.Context(), root); errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), "--webhooks-private has an effect with --dashboard alone") {
		t.Errorf("%v", err)
	}
}
