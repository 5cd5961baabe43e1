package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestManualPages checks that each command has a page with its description, examples and flags.
func TestManualPages(t *testing.T) {
	root, err := newRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "man1")
	root.SetArgs([]string{"docs", "man", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	pages := 0
	walk(root, func(cmd *cobra.Command) {
		if cmd != root && !cmd.IsAvailableCommand() || cmd.HasParent() && !cmd.Parent().IsAvailableCommand() && cmd.Parent() != root {
			return
		}
		if cmd.Name() == "help" {
			return
		}
		pages++
		b, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"))
		if err != nil {
			t.Error(err)
			return
		}
		page := strings.ReplaceAll(string(b), `\-`, "-")
		for _, want := range []string{".SH NAME", ".SH SYNOPSIS", ".SH EXAMPLE", cmd.Short} {
			if !strings.Contains(page, want) {
				t.Errorf("%s: there is no %q", cmd.CommandPath(), want)
			}
		}
		for _, name := range []string{"server", "timeout"} {
			if cmd.Flag(name) != nil && !strings.Contains(page, "--"+name) {
				t.Errorf("%s: there is no --%s", cmd.CommandPath(), name)
			}
		}
		if cmd.Flag("host-file") != nil && !strings.Contains(page, "REGROUP_DISCOVERY_HOST_FILE") {
			t.Errorf("%s: a variable's name is changed by the mark-up", cmd.CommandPath())
		}
	})
	found, err := os.ReadDir(dir)
	if err != nil || len(found) != pages {
		t.Errorf("%d pages for %d commands, %v", len(found), pages, err)
	}
}
