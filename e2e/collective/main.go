// Command collective compares the allreduce of the engine with those of gloo and Open MPI, in one
// run: every round starts each of them once, in random order, with the same sizes. The time of a
// run for a size is the median of its operations. Before and after each run it probes how far apart
// the machine's two cores are, because results differ by a factor of up to four between the two
// placements, and compares like with like.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/report"
)

type bench struct {
	dir      string // for its binaries
	python   string
	packages string // folder with the Python package
	sizes    string
	budget   time.Duration
	timeout  time.Duration
	rounds   int
	only     string // names of peers, separated by semicolons; empty = all
	faults   string // part of the names of faults; empty = all
	runs     []run
}

// run is one start of one peer.
type run struct {
	round, world int
	peer         string
	near         placed
	lines        []line
}

func (b *bench) sizesOf(sizes string) string {
	if sizes != "" {
		return sizes
	}
	return b.sizes
}

func main() {
	b := &bench{timeout: 5 * time.Minute}
	only := flag.String("only", "", "speed or faults; empty = both")
	flag.StringVar(&b.faults, "faults", "", "words in the names of the faults to measure; empty = all")
	trials := flag.Int("trials", 200, "of each kind of SIGKILL")
	out := flag.String("out", "", "Markdown file of which a section is written; empty = standard output")
	flag.IntVar(&b.rounds, "rounds", 7, "rounds")
	flag.DurationVar(&b.budget, "budget", 200*time.Millisecond, "time of a run for a size, at least seven operations")
	flag.StringVar(&b.sizes, "sizes", "4,4096,65536,1048576,16777216,67108864,268435456", "bytes, separated by commas")
	flag.StringVar(&b.only, "peers", "", "names of those to measure, separated by semicolons; empty = all")
	flag.StringVar(&b.python, "python", "python3", "with torch")
	flag.StringVar(&b.packages, "packages", "python", "folder with the package regroup and its library (make libregroup)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := b.all(ctx, *out, *only, *trials); err != nil {
		fmt.Fprintln(os.Stderr, "collective:", err)
		os.Exit(1)
	}
}

func (b *bench) peers() []peer {
	all := []peer{
		torch(gloo, "gloo", ""),
		torch(ourTorch, "regroup", "4,4096,65536,1048576"),
		mpi(mpiShared, "vader"),
		mpi(mpiTCP, "tcp"),
		ours(ourTCP, "", "-over", "tcp"),
		ours(ourShared, "", "-over", "shm"),
		ours(ourArena, "", "-over", "arena"),
	}
	if b.only == "" {
		return all
	}
	names := strings.Split(b.only, ";")
	return slices.DeleteFunc(all, func(p peer) bool { return !slices.Contains(names, p.name) })
}

func (b *bench) all(ctx context.Context, out, only string, trials int) (err error) {
	if b.dir, err = os.MkdirTemp("", "regroup-collective-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	if err := b.prepare(); err != nil {
		return err
	}
	for _, part := range []struct {
		name, title string
		measure     func() (string, error)
	}{
		{"speed", "Collective operations", func() (string, error) { return b.speed(ctx) }},
		{"faults", "Faults during collective operations", func() (string, error) { return b.failures(ctx, trials) }},
	} {
		if only != "" && only != part.name {
			continue
		}
		text, err := part.measure()
		if err != nil {
			return err
		}
		if out == "" {
			fmt.Print(text)
		} else if err := report.Section(out, "# Benchmarks\n", part.title, text); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) speed(ctx context.Context) (string, error) {
	for round := range b.rounds {
		for _, world := range worlds {
			all := b.peers()
			rand.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
			for _, p := range all {
				before := placement()
				lines, err := b.measure(ctx, p, world)
				if err != nil {
					return "", err
				}
				r := run{round: round, world: world, peer: p.name, near: place(before, placement()), lines: lines}
				fmt.Fprintf(os.Stderr, "round %d, %d ranks, %s, %s: %+v\n", round, world, p.name, r.near, lines)
				b.runs = append(b.runs, r)
			}
		}
	}
	paced, err := b.paced(ctx)
	return b.text() + paced, err
}
