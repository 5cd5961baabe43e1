package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// sections of a help text, in their order; those in brackets may be missing.
var sections = []string{"Usage: ", "[Aliases: ", "[Commands", "Examples:", "Flags:", "[Global flags:", "[More about a command: "}

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
		own = own || strings.Contains(l, cmd.CommandPath())
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
