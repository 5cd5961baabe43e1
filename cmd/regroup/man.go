package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
)

// manCommand writes the manual pages of all commands.
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
