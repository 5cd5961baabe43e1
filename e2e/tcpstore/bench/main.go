// Command bench measures the store that an agent serves beside PyTorch's own server: clients of
// PyTorch do what the ranks of a job do at their start. It writes a section of docs/benchmarks.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/report"
)

const title = "TCPStore"

type bench struct {
	python, folder, binary string
	clients                string
	runs, processes        int
	text                   strings.Builder
}

func main() {
	b := &bench{}
	out := flag.String("out", "", "Markdown file of which a section is written; empty = standard output")
	flag.StringVar(&b.python, "python", "python3", "with torch 2.4 or later")
	flag.StringVar(&b.folder, "folder", "e2e/tcpstore/bench", "folder with the programs in Python")
	flag.StringVar(&b.binary, "binary", "bin/tcpstore", "that serves the store (e2e/tcpstore)")
	flag.StringVar(&b.clients, "clients", "64,256,1024,4096", "numbers of clients")
	flag.IntVar(&b.runs, "runs", 3, "of each server with each number of clients")
	flag.IntVar(&b.processes, "processes", 8, "that the clients are in")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := b.all(ctx, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// server is one of those that are compared.
type server struct {
	name    string
	command func(*bench) []string
}

var servers = []server{
	{"PyTorch", func(b *bench) []string { return []string{b.python, "-W", "ignore", b.folder + "/server.py"} }},
	{"Regroup", func(b *bench) []string { return []string{b.binary, "-host", "127.0.0.1"} }},
}

func (b *bench) all(ctx context.Context, out string) error {
	version, err := output(ctx, b.python, "-c", "import torch; print(torch.__version__)")
	if err != nil {
		return err
	}
	fmt.Fprintf(&b.text, `Written by `+"`make bench SUITE=store`"+`: the store that an agent serves, beside PyTorch's own (libuv), each in a process of its own. Clients are those of PyTorch %s, in
%d processes with a thread for each client, on the same machine. Each connects, sets its key, adds to a counter, gets the keys of three others, and waits for a key that the last one sets.
Medians of %d runs, the servers in turn. Measured on %s.

| clients | server | until all are through | 99%% of set and get | server: CPU time | memory for the clients | memory in all |
|---:|---|---:|---:|---:|---:|---:|
`, strings.TrimSpace(version), b.processes, b.runs, report.Machine())
	for field := range strings.SplitSeq(b.clients, ",") {
		n, err := strconv.Atoi(field)
		if err != nil {
			return err
		}
		if err := b.compare(ctx, n); err != nil {
			return err
		}
	}
	b.text.WriteString(`
99% of set and get: one more client, in a process of its own, sets a key and gets it again every 2 ms meanwhile, which are three round trips; a short run has few samples, so it is
nearly the longest. Clients and server share the cores, and PyTorch's server takes a sixth of them at most, so no server could halve the time here. CPU time is counted in steps of 10 ms. Memory: of
the process when all clients are connected, and what came to it since there was none. The clients are without DNS, in which they look up names for each address.
`)
	if out == "" {
		fmt.Print(b.text.String())
		return nil
	}
	return report.Section(out, "# Benchmarks\n", title, b.text.String())
}

func (b *bench) compare(ctx context.Context, clients int) error {
	results := make([][]result, len(servers))
	for range b.runs {
		for i, s := range servers {
			r, err := b.run(ctx, s, clients)
			if err != nil {
				return fmt.Errorf("%s, %d clients: %w", s.name, clients, err)
			}
			fmt.Fprintf(os.Stderr, "%d clients, %s: %v, p99 %v, CPU %v, %d of %d KiB\n", clients, s.name, r.through, r.p99, r.cpu, r.grown, r.memory)
			results[i] = append(results[i], r)
		}
	}
	var medians []result
	for i, s := range servers {
		rs := results[i]
		m := result{
			through: median(rs, func(r result) time.Duration { return r.through }), p99: median(rs, func(r result) time.Duration { return r.p99 }),
			cpu: median(rs, func(r result) time.Duration { return r.cpu }), grown: median(rs, func(r result) int64 { return r.grown }),
			memory: median(rs, func(r result) int64 { return r.memory }),
		}
		medians = append(medians, m)
		fmt.Fprintf(&b.text, "| %d | %s | %d ms | %.1f ms | %d ms | %.1f MiB | %.1f MiB |\n", clients, s.name, m.through.Milliseconds(),
			ms(m.p99), m.cpu.Milliseconds(), mib(m.grown), mib(m.memory))
	}
	theirs, ours := medians[0], medians[1]
	fmt.Fprintf(&b.text, "| | ratio | %.2f | %.2f | %.2f | %.2f | %.2f |\n", ratio(ours.through, theirs.through), ratio(ours.p99, theirs.p99),
		ratio(ours.cpu, theirs.cpu), ratio(ours.grown, theirs.grown), ratio(ours.memory, theirs.memory))
	return nil
}

func median[T ~int64](rs []result, of func(result) T) T {
	var values []T
	for _, r := range rs {
		values = append(values, of(r))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func ratio[T ~int64](a, b T) float64 { return float64(a) / float64(max(b, 1)) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mib(kib int64) float64 { return float64(kib) / 1024 }
