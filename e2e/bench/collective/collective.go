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

// placed is the placement of the cores during a run.
type placed string

const (
	together placed = "near"
	far      placed = "far"
	moved    placed = "moved" // from one to the other
)

func place(before, after float64) placed {
	switch {
	case before < near && after < near:
		return together
	case before >= near && after >= near:
		return far
	}
	return moved
}

const (
	gloo      = "gloo"
	ourTorch  = "regroup through torch"
	mpiShared = "Open MPI, shared memory"
	mpiTCP    = "Open MPI, TCP"
	ourTCP    = "regroup, TCP"
	ourShared = "regroup, same host"
	ourArena  = "regroup, engine's buffers"
)

// goal is a desired and a required ratio.
type goal struct {
	what, ours, theirs string
	bytes              int
	wanted, floor      [2]float64 // with 2 and with 4 ranks
}

const mib64 = 64 << 20

var goals = []goal{
	{"64 MiB, TCP loopback, against gloo", ourTCP, gloo, mib64, [2]float64{1.8, 1.4}, [2]float64{1.3, 1.2}},
	{"4 KiB, TCP loopback, against gloo", ourTCP, gloo, 4096, [2]float64{10, 10}, [2]float64{5, 5}},
	{"64 MiB, same host, any tensor, against gloo", ourShared, gloo, mib64, [2]float64{3.5, 3}, [2]float64{2.5, 2.2}},
	{"64 MiB, same host, buffers of the engine, against gloo", ourArena, gloo, mib64, [2]float64{8, 7}, [2]float64{5, 5}},
	{"64 MiB, same host, against Open MPI's shared memory", ourShared, mpiShared, mib64, [2]float64{2, 2}, [2]float64{1.5, 1.5}},
	{"4 B, same host, against Open MPI's shared memory", ourShared, mpiShared, 4, [2]float64{1, 1}, [2]float64{0.6, 0.6}},
	{"4 KiB, same host, against Open MPI's shared memory", ourShared, mpiShared, 4096, [2]float64{1, 1}, [2]float64{0.6, 0.6}},
	{"4 KiB through torch.distributed, same host, against gloo", ourTorch, gloo, 4096, [2]float64{50, 20}, [2]float64{20, 10}},
}

var worlds = [2]int{2, 4}

// medians are the per-run medians of a peer at a size.
func (b *bench) medians(peer string, world, bytes int, where placed) (all []float64) {
	for _, r := range b.runs {
		if r.peer != peer || r.world != world || (where != "" && r.near != where) {
			continue
		}
		for _, l := range r.lines {
			if l.bytes == bytes {
				all = append(all, l.median)
			}
		}
	}
	slices.Sort(all)
	return all
}

// spread is min / median / max.
func spread(all []float64) string {
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("%s / %s / %s", figure(all[0]), figure(all[len(all)/2]), figure(all[len(all)-1]))
}

func figure(us float64) string {
	switch {
	case us < 10:
		return fmt.Sprintf("%.2f", us)
	case us < 1000:
		return fmt.Sprintf("%.0f", us)
	}
	return fmt.Sprintf("%.1f ms", us/1000)
}

func size(bytes int) string {
	switch {
	case bytes >= 1<<20:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes >= 1<<10:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d B", bytes)
}

func (b *bench) text() string {
	var t strings.Builder
	fmt.Fprintf(&t, "Allreduce of float32 among processes of one machine, %d rounds in which every\n"+
		"library is started once, in random order. A time is the median of one run; shown are the least, the median and the\n"+
		"greatest over the runs, in microseconds where nothing else is said. gloo is measured through torch.distributed. \"near\"\n"+
		"and \"far\" are the two placements of the machine's cores, probed before and after each run (a cache line takes less or\n"+
		"more than %d ns to the other core and back); runs in which the placement changed count in the rows without one.\n", b.rounds, near)
	fmt.Fprintf(&t, "\n| work | ranks | goal | floor | ratio of medians | near | far |\n|---|---|---|---|---|---|---|\n")
	for _, g := range goals {
		for i, world := range worlds {
			fmt.Fprintf(&t, "| %s | %d | %gx | %gx | %s | %s | %s |\n", g.what, world, g.wanted[i], g.floor[i],
				b.ratio(g, world, ""), b.ratio(g, world, together), b.ratio(g, world, far))
		}
	}
	for _, world := range worlds {
		for _, where := range []placed{together, far} {
			b.table(&t, world, where)
		}
	}
	return t.String()
}

func (b *bench) ratio(g goal, world int, where placed) string {
	mine, theirs := b.medians(g.ours, world, g.bytes, where), b.medians(g.theirs, world, g.bytes, where)
	if len(mine) == 0 || len(theirs) == 0 {
		return "not seen"
	}
	return fmt.Sprintf("%.2gx", theirs[len(theirs)/2]/mine[len(mine)/2])
}

func (b *bench) table(t *strings.Builder, world int, where placed) {
	names, sizes := []string{gloo, mpiTCP, ourTCP, mpiShared, ourShared, ourArena, ourTorch}, []int{}
	for _, r := range b.runs {
		for _, l := range r.lines {
			if r.world == world && r.near == where && !slices.Contains(sizes, l.bytes) {
				sizes = append(sizes, l.bytes)
			}
		}
	}
	if len(sizes) == 0 {
		return
	}
	slices.Sort(sizes)
	fmt.Fprintf(t, "\n%d ranks, cores %s:\n\n| bytes | %s |\n|---%s|\n", world, where, strings.Join(names, " | "), strings.Repeat("|---", len(names)))
	for _, n := range sizes {
		fmt.Fprintf(t, "| %s |", size(n))
		for _, name := range names {
			fmt.Fprintf(t, " %s |", spread(b.medians(name, world, n, where)))
		}
		fmt.Fprintln(t)
	}
}
