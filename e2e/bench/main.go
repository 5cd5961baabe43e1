// Command bench measures with real processes on this machine, and writes what it has measured into
// a document.
//
//	go run ./e2e/bench SUITE [-out docs/benchmarks.md] [flags of the suite]
//
// make suites lists the suites, and make bench SUITE=NAME builds what one of them needs.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/regroup-io/regroup/e2e/bench/abuse"
	"github.com/regroup-io/regroup/e2e/bench/collective"
	"github.com/regroup-io/regroup/e2e/bench/http"
	"github.com/regroup-io/regroup/e2e/bench/queue"
	"github.com/regroup-io/regroup/e2e/bench/recovery"
	"github.com/regroup-io/regroup/e2e/bench/scale"
	"github.com/regroup-io/regroup/e2e/bench/state"
	"github.com/regroup-io/regroup/e2e/bench/store"
	"github.com/regroup-io/regroup/e2e/bench/torch"
	"github.com/regroup-io/regroup/e2e/program"
	"github.com/regroup-io/regroup/e2e/report"
)

var suites = map[string]report.Suite{
	"abuse": abuse.Suite, "collective": collective.Suite, "control": recovery.Control, "guarded": recovery.Guarded, "http": http.Suite, "queue": queue.Suite,
	"recovery": recovery.Suite, "scale": scale.Suite, "hold": scale.Hold, "state": state.Suite, "store": store.Suite, "torch": torch.Suite,
	"torchrun": torch.Launchers,
}

func main() {
	if len(os.Args) < 2 || suites[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: bench SUITE [flags]; suites are", slices.Sorted(maps.Keys(suites)))
		os.Exit(2)
	}
	r := &report.Report{Suite: os.Args[1]}
	flags := flag.NewFlagSet(r.Suite, flag.ExitOnError)
	flags.StringVar(&r.Out, "out", "", "Markdown file of which sections are written; empty = standard output")
	flags.StringVar(&r.Bin, "bin", "bin", "folder of the binaries")
	measure := suites[r.Suite](flags)
	_ = flags.Parse(os.Args[2:]) // it exits on an error
	program.Main("bench "+r.Suite, func(ctx context.Context) (err error) {
		if r.Bin, err = filepath.Abs(r.Bin); err != nil {
			return err
		}
		return measure(ctx, r)
	})
}
