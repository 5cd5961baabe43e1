package collective

import (
	"fmt"
	"slices"
	"strings"
)

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
