package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/report"
	"github.com/regroup-io/regroup/events"
)

var verbose bool

func main() {
	out := flag.String("out", "", "Markdown file of which a section is written; empty = standard output")
	bin := flag.String("bin", "bin", "folder of the binaries")
	sizes := flag.String("agents", "64,512,5000", "numbers of agents, of 8 slots each")
	trials := flag.Int("trials", 7, "jobs for each number of agents")
	title := flag.String("title", "Many agents", "of the section")
	held := flag.Int("hold", 0, "only join so many agents to -server, and hold a job on them until the input ends")
	server := flag.String("server", "", "of -hold")
	flag.BoolVar(&verbose, "v", false, "print the facts as they come")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *held > 0 {
		if err := hold(ctx, *server, *held, os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, "scale:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(ctx, *out, *title, *bin, *sizes, *trials); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, title, bin, sizes string, trials int) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	var all []*size
	var failed error
	for text := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "scale:", n, "agents")
		s, err := one(ctx, bin, n, trials)
		if err != nil { // results so far are still written
			failed = fmt.Errorf("%d agents: %w", n, err)
			break
		}
		all = append(all, s)
		fmt.Fprint(os.Stderr, table(all[len(all)-1:]))
	}
	text := table(all)
	if failed != nil {
		text += fmt.Sprintf("\nNot measured: %s.\n", strings.ReplaceAll(failed.Error(), "\n", ", "))
	}
	if out == "" {
		fmt.Print(text)
		return failed
	}
	return errors.Join(failed, report.Section(out, "# Benchmarks\n", title, text))
}

// one measures with a new control plane, so that nothing of the previous size is left.
func one(ctx context.Context, bin string, n, trials int) (*size, error) {
	p, err := start(ctx, bin)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	s, err := measure(ctx, p, n, trials)
	if err != nil {
		for _, name := range p.processes.Names() {
			fmt.Fprintf(os.Stderr, "--- %s\n%s", name, p.processes.Log(name, 2000))
		}
	}
	return s, err
}

func table(all []*size) string {
	var b strings.Builder
	fmt.Fprintf(&b, `Written by `+"`make bench SUITE=scale`"+`. Measured on %s. Three brokers and two replicas of each service are processes of their own, the agents are
simulated (8 slots each, heartbeats every %s, from a thousand agents on every second, above 2,500 every two); all of them share this machine.
The agents would have machines of their own: here the control plane runs at a lower priority (nice 5), so that heartbeats do not wait for what is measured.

| agents | ranks | | trials | min | median | max | goal |
|---|---|---|---|---|---|---|---|
`, report.Machine(), heartbeat)
	for _, s := range all {
		goal := "none"
		switch {
		case s.agents == 512:
			goal = "median 500 ms"
		case s.agents == 5000:
			goal = "3000 ms"
		}
		row := func(what string, d []time.Duration, goal string) {
			ms := func(q float64) float64 { return float64(report.Quantile(d, q)) / float64(time.Millisecond) }
			fmt.Fprintf(&b, "| %d | %d | %s | %d | %.0f | %.0f | %.0f | %s |\n", s.agents, s.agents*slots, what, len(d), ms(0), ms(0.5), ms(1), goal)
		}
		row("from the placement to every agent holding its ranks, ms", s.form, goal)
		row("from one agent's notice of a failure to every agent having it, ms", s.notice, "median 100 ms")
		row("from the verdict that a node is lost to every other agent having heard that the generation is over, ms", s.lost, "none")
		row("from that verdict to every other agent holding its ranks in the next generation, ms", s.regain, "none")
	}
	kinds := append([]string{"nats"}, events.ServiceNames()...)
	b.WriteString("\nWhat an agent costs, all replicas together: processor time from the submit to the ranks, share of a core for heartbeats alone, resident memory of one replica.\n\n")
	b.WriteString("| agents | form, ms per agent | processor, ms per agent | idle, % of a core per 1000 agents |")
	for _, k := range kinds {
		fmt.Fprintf(&b, " %s, MiB |", k)
	}
	b.WriteString("\n|---|---|---|---|" + strings.Repeat("---|", len(kinds)) + "\n")
	for _, s := range all {
		var cpu time.Duration
		idle := 0.0
		for _, k := range kinds {
			cpu += s.cpu[k]
			idle += s.idle[k]
		}
		n := float64(s.agents)
		fmt.Fprintf(&b, "| %d | %.2f | %.2f | %.1f |", s.agents, float64(report.Quantile(s.form, 0.5))/float64(time.Millisecond)/n,
			float64(cpu)/float64(time.Millisecond)/n/float64(len(s.form)), 1000*idle/n)
		for _, k := range kinds {
			fmt.Fprintf(&b, " %.0f |", float64(s.memory[k])/1024)
		}
		b.WriteString("\n")
	}
	if verbose {
		for _, s := range all {
			for _, k := range slices.Sorted(slices.Values(kinds)) {
				fmt.Fprintf(os.Stderr, "%d %s: cpu %s idle %.0f%%\n", s.agents, k, s.cpu[k]/time.Duration(len(s.form)), s.idle[k])
			}
		}
	}
	return b.String()
}
