// Command audit proves from the output of `regroup status JOB -o json` that no sample is missing
// and none repeated:
//
//	regroup status JOB -o json | go run ./e2e/ledger/audit -seed 1
//
// It exits 1 if the ledger does not prove that.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/regroup-io/regroup/e2e/ledger"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "audit:", err)
		os.Exit(1)
	}
}

func run() error {
	seed := flag.Uint64("seed", 0, "of the order; 0 = the epoch under way is not checked")
	flag.Parse()
	l, err := ledger.Read(os.Stdin)
	if err != nil {
		return err
	}
	if *seed == 0 {
		seed = nil
	}
	a, err := l.Check(seed)
	fmt.Printf("%d epochs of %d samples are done, %d samples in all: missing %d, repeated %d\n", a.Epochs, l.Samples, a.Samples, a.Missing, a.Repeated)
	return err
}
