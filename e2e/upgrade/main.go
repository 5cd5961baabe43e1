// Command upgrade proves that a running cluster is upgraded one replica at a time. It builds an old
// commit and this tree, starts a cluster of the old build, and replaces every process of it by one
// of this tree while jobs train; then it takes the services back to the old build, which so has to
// read what the new one has stored. In each mixed state workers are killed. In the end every job
// must have succeeded with each sample trained on once, by the records of its workers.
//
//	go run ./e2e/upgrade -from HEAD^
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	from string
	only string
}

// limit bounds the whole run.
const limit = 30 * time.Minute

func main() {
	var o options
	flag.StringVar(&o.from, "from", "", "commit of the old build")
	flag.StringVar(&o.only, "only", "", "services = replace and take back the services alone; empty = agents and the broker too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "upgrade:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out, log io.Writer) (err error) {
	if o.from == "" || o.only != "" && o.only != "services" {
		return errors.New("-from must name a commit, -only be empty or services")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %v", limit))
	defer cancel()
	dir, err := os.MkdirTemp("", "regroup-upgrade-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	began := time.Now()
	before, after, err := builds(ctx, o.from, dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "%s is %s, %s is %s; built in %v\n", before.name, before.version, after.name, after.version, time.Since(began).Round(time.Second))
	d, err := deploy(ctx, filepath.Join(dir, "cluster"), before, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(err != nil)) }()
	r := &rollout{deployment: d, before: before, after: after, began: time.Now(), servicesOnly: o.only == "services"}
	if err := r.run(ctx); err != nil {
		return err
	}
	return r.prove(ctx, out)
}
