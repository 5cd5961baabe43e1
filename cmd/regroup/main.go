// Command regroup is elastic distributed training in one binary: the CLI, every service and the agent.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/regroup-io/regroup/cmd/regroup/internal/exitcode"
)

// version is set by the linker.
var version = "dev"

func main() {
	// The control plane's heap is small and steady: a tighter pace keeps an idle process well under what a node can spare.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	root, err := newRoot()
	if err == nil {
		err = root.ExecuteContext(context.Background())
	}
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, "regroup:", err)
	}
	os.Exit(exitcode.Of(err))
}
