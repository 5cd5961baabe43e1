// Command release makes the files of a release of what `make release` has built, and changes the
// version of the tree. docs/release.md says how a release is made.
//
//	release check                    refuses a tree that is not exactly the commit of a tag
//	release assemble -dist dist      writes everything that needs no compiler
//	release version [-date D] 0.2.0  puts a version into every file that has it
//
// It is a module of its own, so that nothing else depends on the libraries that it needs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/regroup-io/regroup/internal/version"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

const usage = "usage: release check | assemble -dist DIR | version [-date YYYY-MM-DD] NUMBER"

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	root := flags.String("root", "../..", "the top of the tree")
	dist := flags.String("dist", "../../dist", "where the files of a release are written")
	date := flags.String("date", "", "the day of the release, for CHANGELOG.md; empty = not released yet")
	key := flags.String("key", "", "the key that cosign signs with: a file, or another reference to a key that cosign accepts")
	cosign := flags.String("cosign", "cosign", "the program that signs")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "check":
		c, err := check(ctx, *root)
		if err != nil {
			return err
		}
		fmt.Printf("release: %s of commit %s\n", version.Number, c.Hash)
		return nil
	case "assemble":
		c, err := check(ctx, *root)
		if err != nil {
			return err
		}
		return assemble(ctx, *root, *dist, c, signer{cosign: *cosign, key: *key})
	case "version":
		if flags.NArg() != 1 {
			return errors.New(usage)
		}
		return setVersion(*root, flags.Arg(0), *date)
	}
	return errors.New(usage)
}
