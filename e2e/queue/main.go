// Command queue measures bursts of jobs, with real processes on this machine, and writes a report.
//
//	go run ./e2e/queue -out docs/benchmarks.md
//
// Several clients submit empty jobs all at once, which must all end; then ten thousand wait behind
// running jobs, and it measures the time from the end of one to the placement of the next, and the
// memory of the services. Then as many are run to their ends. It runs bin/regroup (make build) and
// /bin/true and /bin/sleep, and nothing else.
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

const head = "# Benchmarks\n"

const slots = 8

func main() {
	out := flag.String("out", "", "Markdown file of which a section is written; empty = standard output")
	bin := flag.String("bin", "bin", "folder of the binaries")
	burst := flag.Int("crowd", 300, "jobs that are published at once")
	queue := flag.Int("queue", 10000, "jobs that wait")
	trials := flag.Int("trials", 50, "jobs that end before the queue")
	through := flag.Int("through", 10000, "jobs that are run to their ends")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *out, *bin, *burst, *queue, *trials, *through); err != nil {
		fmt.Fprintln(os.Stderr, "queue:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, bin string, burst, queue, trials, through int) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, `Written by `+"`make bench SUITE=queue`"+`. Measured on %s. Brokers, one replica of each service, a gateway and one agent with %d slots are processes
of their own on this machine; eight clients publish. A job that does nothing is /bin/true with restart recovery.

| what | brokers | trials | min | median | p90 | max | goal |
|---|---|---|---|---|---|---|---|
`, report.Machine(), slots)
	for _, brokers := range []int{1, 3} {
		took, err := inPlane(ctx, bin, brokers, func(p *plane) (string, error) { return p.burst(ctx, burst) })
		if err != nil {
			return fmt.Errorf("%d brokers: %w", brokers, err)
		}
		text.WriteString(took)
	}
	for _, brokers := range []int{1, 3} {
		rows, err := inPlane(ctx, bin, brokers, func(p *plane) (string, error) { return p.queue(ctx, queue, trials) })
		if err != nil {
			return fmt.Errorf("%d brokers: %w", brokers, err)
		}
		text.WriteString(rows)
	}
	for _, brokers := range []int{1, 3} {
		rows, err := inPlane(ctx, bin, brokers, func(p *plane) (string, error) { return p.finish(ctx, through) })
		if err != nil {
			return fmt.Errorf("%d brokers: %w", brokers, err)
		}
		text.WriteString(rows)
	}
	if out == "" {
		fmt.Print(text.String())
		return nil
	}
	return report.Section(out, head, "Many jobs", text.String())
}

// inPlane measures with a new control plane.
func inPlane(ctx context.Context, bin string, brokers int, measure func(*plane) (string, error)) (string, error) {
	p, err := start(ctx, bin, brokers)
	if err != nil {
		return "", err
	}
	defer p.stop()
	return measure(p)
}

func row(what string, brokers int, d []time.Duration, goal string) string {
	ms := func(q float64) float64 { return float64(report.Quantile(d, q)) / float64(time.Millisecond) }
	return fmt.Sprintf("| %s | %d | %d | %.1f | %.1f | %.1f | %.1f | %s |\n", what, brokers, len(d), ms(0), ms(0.5), ms(0.9), ms(1), goal)
}
