// Command chaos trains one job under hundreds of random faults and proves that no sample was lost.
//
//	CHAOS_SEED=7 CHAOS_FAULTS=200 go run ./e2e/chaos -out docs/reliability.md
//
// With CHAOS_GUARDED=1 every process has an identity of its own, and connections are encrypted. It
// needs Linux, root and bin/regroup and bin/recorder (make chaos builds them). The same seed gives
// the same faults.
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
	"strconv"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/e2e/report"
)

func main() {
	out := flag.String("out", "", "Markdown file to write the section into; empty = standard output")
	bin := flag.String("bin", "bin", "folder of the binaries")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *out, *bin, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, bin string, log io.Writer) error {
	seed, err := number("CHAOS_SEED", uint64(time.Now().UnixNano())%1_000_000)
	faults, err1 := number("CHAOS_FAULTS", 200)
	guarded, err2 := number("CHAOS_GUARDED", 0)
	bin, err3 := filepath.Abs(bin)
	if err := errors.Join(err, err1, err2, err3); err != nil {
		return err
	}
	fmt.Fprintf(log, "CHAOS_SEED=%d CHAOS_FAULTS=%d CHAOS_GUARDED=%d\n", seed, faults, guarded)
	r, err := unleash(ctx, bin, parameters{seed, int(faults), guarded != 0}, log)
	if err != nil {
		return fmt.Errorf("CHAOS_SEED=%d: %w", seed, err)
	}
	text := r.markdown()
	fmt.Fprint(log, text)
	if out == "" {
		return nil
	}
	section := "Chaos"
	if guarded != 0 {
		section = "Chaos with identities and TLS"
	}
	return report.Section(out, report.Reliability, section, text)
}

// number reads a setting.
func number(name string, otherwise uint64) (uint64, error) {
	v := os.Getenv(name)
	if v == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(v, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s=%q is not a number", name, v)
	}
	return n, nil
}
