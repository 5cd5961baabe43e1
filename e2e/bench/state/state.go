// Package state measures the cost of commits compared with plain copies of the same bytes, and of
// sending the state to a new worker compared with sending it as many bytes. It runs the benchmarks
// of package statesync.
package state

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/report"
)

// Suite runs the benchmarks.
func Suite(f *flag.FlagSet) func(context.Context, *report.Report) error {
	rounds := f.Int("rounds", 5, "runs of each benchmark")
	return func(ctx context.Context, r *report.Report) error {
		printed, err := cluster.Output(exec.CommandContext(ctx, "go", "test", "./elastic/statesync", "-run", "^$", "-bench", "^Benchmark(Commit|Name|Sync)$",
			"-benchtime", "5x", "-count", strconv.Itoa(*rounds)))
		if err != nil {
			return fmt.Errorf("%w\n%s", err, printed)
		}
		return r.Section("Commits and syncs", table(read(printed)))
	}
}

// line is one run of a benchmark: its metrics by unit.
type line struct {
	name    string
	metrics map[string]float64
}

// read parses the output of go test: a name with the number of processors, a count, and values with
// their units.
func read(printed string) (all []line) {
	for s := bufio.NewScanner(strings.NewReader(printed)); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if at := strings.LastIndexByte(name, '-'); at > 0 {
			name = name[:at]
		}
		l := line{name: name, metrics: map[string]float64{}}
		for i := 2; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				l.metrics[fields[i+1]] = v
			}
		}
		all = append(all, l)
	}
	return all
}

func table(all []line) string {
	var t strings.Builder
	t.WriteString("A commit beside a copy of the same bytes on as many threads, the hash of a commit beside a\n" +
		"copy on one, and bringing newcomers a state of 256 MiB over TCP, hashes and tensors included, beside sending as many\n" +
		"bytes. Both are measured turn by turn. With several holders the reference already keeps two cores busy, so that hashes and\n" +
		"copies add to the time; over a network they are hidden. GB/s are medians of the runs; shares are least / median / greatest.\n\n" +
		"| work | reference, GB/s | measured, GB/s | share | goal |\n|---|---|---|---|---|\n")
	var names []string
	runs := map[string][]line{}
	for _, l := range all {
		if runs[l.name] == nil {
			names = append(names, l.name)
		}
		runs[l.name] = append(runs[l.name], l)
	}
	for _, name := range names {
		ratio := values(runs[name], "ratio")
		fmt.Fprintf(&t, "| %s | %.2f | %.2f | %.0f / %.0f / %.0f %% | %s |\n", strings.ReplaceAll(name, "/", ", "),
			middle(values(runs[name], "reference-GB/s")), middle(values(runs[name], "GB/s")),
			100*ratio[0], 100*middle(ratio), 100*ratio[len(ratio)-1], goal(name))
	}
	return t.String()
}

func goal(name string) string {
	if strings.HasPrefix(name, "Commit") || strings.HasSuffix(name, "holders=1/newcomers=1") {
		return "80 %"
	}
	return "none"
}

func values(runs []line, unit string) []float64 {
	all := make([]float64, 0, len(runs))
	for _, r := range runs {
		all = append(all, r.metrics[unit])
	}
	slices.Sort(all)
	return all
}

func middle(sorted []float64) float64 { return sorted[len(sorted)/2] }
