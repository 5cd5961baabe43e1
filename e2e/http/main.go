// Command http measures a gateway with real processes on this machine, and writes a report.
//
//	go run ./e2e/http -out docs/benchmarks.md
//
// Clients publish CloudEvents over HTTP at a fixed rate, and others follow all facts as server-sent
// events. It runs bin/regroup (make build), and nothing else.
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

func main() {
	out := flag.String("out", "", "Markdown file of which a section is written; empty = standard output")
	bin := flag.String("bin", "bin", "folder of the binaries")
	rate := flag.Int("rate", 2000, "events a second")
	lasts := flag.Duration("for", 10*time.Second, "how long events are published")
	runs := flag.Int("runs", 3, "how often, each on a new cluster")
	readers := flag.Int("readers", 1000, "clients that follow all facts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *out, *bin, *rate, *lasts, *runs, *readers); err != nil {
		fmt.Fprintln(os.Stderr, "http:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, bin string, rate int, lasts time.Duration, runs, readers int) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, `Written by `+"`make bench SUITE=http`"+`. Measured on %s. A broker with files, one replica of each service and a gateway are processes of their own on this machine,
and so are the clients, which share its cores with them. Each event is a request (job.scale, binary mode) that is answered when the broker has stored it; the registry refuses it with a fact. Times
are from the moment at which an event was due to its answer.

| what | run | events | refused by HTTP | median, ms | p99, ms | max, ms | goal |
|---|---|---|---|---|---|---|---|
`, report.Machine())
	for r := range runs {
		err := inCluster(ctx, bin, func(c *cluster) error {
			took, failed, all, err := c.publish(ctx, rate, lasts)
			if err != nil {
				return err
			}
			ms := func(q float64) float64 { return float64(report.Quantile(took, q)) / float64(time.Millisecond) }
			line := fmt.Sprintf("| %d events a second for %v; after %.0f s each had its fact | %d | %d | %d | %.1f | %.1f | %.1f | p99 50 ms |\n", rate, lasts, all.Seconds(), r+1, len(took), failed, ms(0.5), ms(0.99), ms(1))
			fmt.Fprint(os.Stderr, line)
			text.WriteString(line)
			return nil
		})
		if err != nil {
			return err
		}
	}
	err = inCluster(ctx, bin, func(c *cluster) error {
		before, after, err := c.follow(ctx, readers)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("\n%d clients that follow all facts as server-sent events, each of which got 100 of them: the gateway takes %.0f MiB, %.0f MiB before they came (goal: at most 200 MiB).\n", readers, after, before)
		fmt.Fprint(os.Stderr, line)
		text.WriteString(line)
		return nil
	})
	if err != nil {
		return err
	}
	if out == "" {
		fmt.Print(text.String())
		return nil
	}
	return report.Section(out, head, "Over HTTP", text.String())
}
