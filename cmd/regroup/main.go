// Command regroup is elastic distributed training in one binary: the CLI, every service and the
// agent.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/exitcode"
	"github.com/regroup-io/regroup/cmd/regroup/internal/jobflags"
	"github.com/regroup-io/regroup/cmd/regroup/internal/visible"
)

func main() {
	// On a node that trains, the heap is small and steady: a tighter pace keeps an idle process
	// well under what the node can spare. A service of its own has the documents of thousands of
	// nodes in hand, and its time matters more.
	if os.Getenv("GOGC") == "" && (len(os.Args) < 2 || os.Args[1] != "serve") {
		debug.SetGCPercent(50)
	}
	root, err := newRoot()
	if err == nil {
		if len(os.Args) > 1 && (os.Args[1] == "run" || os.Args[1] == "submit") {
			root.SetArgs(spelt(root, os.Args[1:]))
		}
		err = root.ExecuteContext(context.Background())
	}
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, "regroup:", visible.Text(err.Error()))
	}
	os.Exit(exitcode.Of(err))
}

// spelt are the arguments of a command that submits, with what only other launchers spell so.
func spelt(root *cobra.Command, args []string) []string {
	cmd, _, err := root.Find(args[:1])
	if err != nil {
		return args
	}
	cmd.InheritedFlags() // from now on Flags has them too
	return append(args[:1:1], jobflags.Spell(cmd.Flags(), args[1:])...)
}
