// Package collective compares the allreduce of the engine with those of gloo and Open MPI, in one
// run: every round starts each of them once, in random order, with the same sizes. The time of a
// run for a size is the median of its operations. Before and after each run it probes how far apart
// the machine's two cores are, because results differ by a factor of up to four between the two
// placements, and compares like with like.
package collective

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/report"
)

type bench struct {
	*report.Report
	dir      string // for its binaries
	python   string
	packages string // folder with the Python package
	sizes    string
	budget   time.Duration
	rounds   int
	only     string // names of peers, separated by semicolons; empty = all
	faults   string // part of the names of faults; empty = all
	runs     []run
}

// timeout bounds one run.
const timeout = 5 * time.Minute

// run is one start of one peer.
type run struct {
	round, world int
	peer         string
	near         placed
	lines        []line
}

// Suite measures speed, and faults in the middle of an operation.
func Suite(f *flag.FlagSet) func(context.Context, *report.Report) error {
	b := &bench{}
	only := f.String("only", "", "speed or faults; empty = both")
	f.StringVar(&b.faults, "faults", "", "words in the names of the faults to measure; empty = all")
	trials := f.Int("trials", 200, "of each kind of SIGKILL")
	f.IntVar(&b.rounds, "rounds", 7, "rounds")
	f.DurationVar(&b.budget, "budget", 200*time.Millisecond, "time of a run for a size, at least seven operations")
	f.StringVar(&b.sizes, "sizes", "4,4096,65536,1048576,16777216,67108864,268435456", "bytes, separated by commas")
	f.StringVar(&b.only, "peers", "", "names of those to measure, separated by semicolons; empty = all")
	f.StringVar(&b.python, "python", "python3", "with torch")
	f.StringVar(&b.packages, "packages", "python", "folder with the package regroup and its library (make libregroup)")
	return func(ctx context.Context, r *report.Report) (err error) {
		b.Report = r
		if b.dir, err = os.MkdirTemp("", "regroup-collective-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
		if err := b.prepare(ctx); err != nil {
			return err
		}
		if *only != "faults" {
			text, err := b.speed(ctx)
			if err == nil {
				err = r.Section("Collective operations", text)
			}
			if err != nil {
				return err
			}
		}
		if *only == "speed" {
			return nil
		}
		text, err := b.failures(ctx, *trials)
		if err != nil {
			return err
		}
		return r.Section("Faults during collective operations", text)
	}
}

func (b *bench) sizesOf(sizes string) string { return cmp.Or(sizes, b.sizes) }

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
				b.Say("round %d, %d ranks, %s, %s: %+v", round, world, p.name, r.near, lines)
				b.runs = append(b.runs, r)
			}
		}
	}
	paced, err := b.paced(ctx)
	return b.text() + paced, err
}

// A link of 1 Gb/s is simulated by pacing every connection.
const (
	pace       = 125_000_000 // bytes per second
	pacedBytes = 16 << 20
)

// paced measures the utilisation of a slow link, and the gain from half as many bytes.
func (b *bench) paced(ctx context.Context) (string, error) {
	var t strings.Builder
	fmt.Fprintf(&t, "\nA link of 1 Gb/s (every connection paced to %d MB/s), 16 MiB, regroup over TCP:\n\n"+
		"| ranks | float32 | share of the ideal time (goal 97 %%, floor 93 %%) | float16 on the wire | speed-up (goal 1.95x, floor 1.8x) |\n|---|---|---|---|---|\n", pace/1_000_000)
	for _, world := range worlds {
		var full, half []float64
		for range b.rounds {
			for wire, all := range map[string]*[]float64{"float32": &full, "float16": &half} {
				p := ours("paced "+wire, strconv.Itoa(pacedBytes), "-over", "tcp", "-pace", strconv.Itoa(pace), "-wire", wire)
				lines, err := b.measure(ctx, p, world)
				if err != nil {
					return "", err
				}
				*all = append(*all, lines[0].median)
			}
		}
		slices.Sort(full)
		slices.Sort(half)
		ideal := 2 * float64(world-1) / float64(world) * pacedBytes / pace * 1e6
		f, h := full[len(full)/2], half[len(half)/2]
		fmt.Fprintf(&t, "| %d | %s | %.1f %% | %s | %.2fx |\n", world, spread(full), 100*ideal/f, spread(half), f/h)
	}
	return t.String(), nil
}
