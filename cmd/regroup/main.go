// Command regroup is elastic distributed training in one binary: the CLI, all services and the
// agent.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/jobflags"
	"github.com/regroup-io/regroup/internal/escape"
	"github.com/regroup-io/regroup/internal/exitcode"
)

func main() {
	// On a training node the heap is small and steady: a lower GOGC keeps the memory of an idle
	// process small. A separate service holds the documents of thousands of nodes, and its CPU time
	// matters more.
	if os.Getenv("GOGC") == "" && (len(os.Args) < 2 || os.Args[1] != "serve") {
		debug.SetGCPercent(50)
	}
	root, err := newRoot()
	if err == nil {
		if len(os.Args) > 1 && slices.Contains([]string{"run", "horovodrun", "submit"}, os.Args[1]) {
			root.SetArgs(spelt(root, os.Args[1:]))
		}
		err = command.Execute(context.Background(), root)
	}
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, "regroup:", escape.Text(err.Error()))
	}
	os.Exit(exitcode.Of(err))
}

// spelt returns the arguments of a submitting command, with other launchers' spellings rewritten.
func spelt(root *cobra.Command, args []string) []string {
	cmd, _, err := root.Find(args[:1])
	if err != nil {
		return args
	}
	cmd.InheritedFlags() // from now on Flags has them too
	return append(args[:1:1], jobflags.Spell(cmd.Flags(), args[1:])...)
}
