// Command bench measures recovery times with real processes on this machine, and writes a report.
//
//	go run ./e2e/bench -out docs/benchmarks.md
//
// It runs bin/regroup and bin/counter (make build) and nothing else. Figures are wall times
// measured by a client: from just before the SIGKILL, or the submit, to the arrival of the fact
// that the step was made.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/report"
)

func main() {
	out := flag.String("out", "", "Markdown file to write; empty = standard output")
	bin := flag.String("bin", "bin", "folder of the binaries")
	kills := flag.Int("kills", 200, "workers to kill")
	submits := flag.Int("submits", 30, "jobs to submit")
	losses := flag.Int("losses", 60, "agents to kill with their workers")
	joins := flag.Int("joins", 50, "nodes to join, for each size of state")
	idle := flag.Duration("idle", 30*time.Second, "how long the idle process is watched")
	cuts := flag.Int("cuts", 50, "nodes to cut off")
	control := flag.Int("control-kills", 1000, "processes of the control plane to kill, for -only control")
	runs := flag.Int("control-runs", 20, "runs over which they are spread, each followed by an undisturbed one")
	only := flag.String("only", "", "one of idle, submit, kill, lose, join, network, control, guarded; empty = all but the last two")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *only == "guarded" {
		err = guarded(ctx, *out, *bin, *kills, *submits, *idle)
	} else if *only != "network" && *only != "control" {
		err = run(ctx, *out, *bin, *only, *kills, *submits, *losses, *joins, *idle)
	}
	if err == nil && (*only == "" || *only == "network") {
		err = hosts(ctx, *out, *bin, *cuts, *kills)
	}
	if err == nil && *only == "control" {
		err = undisturbed(ctx, *out, *bin, *control, *runs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, bin, only string, kills, submits, losses, joins int, idle time.Duration) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	cluster, err := start(ctx, bin, 4)
	if err != nil {
		return err
	}
	defer cluster.stop()
	var text strings.Builder
	text.WriteString(table())
	for _, b := range []struct {
		name string
		run  func() (string, error)
	}{
		{"idle", func() (string, error) { return measureIdle(ctx, cluster, idle) }},
		{"submit", func() (string, error) { return measureSubmit(ctx, cluster, submits) }},
		{"kill", func() (string, error) { return measureKill(ctx, cluster, kills) }},
		{"lose", func() (string, error) { return measureLosses(ctx, bin, losses) }},
		{"join", func() (string, error) { return measureJoins(ctx, bin, joins) }},
	} {
		if only != "" && only != b.name {
			continue
		}
		fmt.Fprintln(os.Stderr, "bench:", b.name)
		rows, err := b.run()
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		text.WriteString(rows)
	}
	return write(out, "One process", text.String())
}

func guarded(ctx context.Context, out, bin string, kills, submits int, idle time.Duration) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	text, err := measurePrice(ctx, bin, kills, submits, idle)
	if err != nil {
		return err
	}
	return write(out, "With identities and TLS", text)
}

// write writes a section to the document, or to standard output.
func write(out, title, text string) error {
	if out == "" {
		fmt.Print(text)
		return nil
	}
	return report.Section(out, head, title, text)
}
