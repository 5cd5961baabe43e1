// Command torchrun measures how long a job that is restarted as a whole stands still: torchrun
// beside `regroup torchrun`, without and with spares, and torchrun's own agents on Regroup's
// rendezvous. It runs python/bench/restart.py, and writes a section of docs/benchmarks.md.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/regroup-io/regroup/e2e/report"
)

const title = "Restarts, beside torchrun"

type bench struct {
	python, packages, binary string
	runs                     int
	launchers, faults        []string
	text                     strings.Builder
}

// launcherNames are those of python/bench/restart.py, as the table calls them.
var launcherNames = map[string]string{
	"torchrun": "torchrun", "regroup": "regroup torchrun", "spares": "regroup torchrun --spares", "handler": "torchrun --rdzv-backend=regroup",
}

// aims are the largest ratios to torchrun that we want, by fault and launcher.
var aims = map[[2]string]string{
	{"worker killed", "regroup"}: "1/2", {"worker killed", "spares"}: "1/5", {"node killed", "regroup"}: "1/10", {"node joins", "regroup"}: "1/3",
	{"network cut", "regroup"}: "1/10",
}

// parts are those of a recovery, in their order.
var parts = []string{"until the process", "start of Python", "import", "init", "model", "first step"}

// result is what restart.py says of one fault, times in seconds.
type result struct {
	Runs    int                `json:"runs"`
	None    int                `json:"none"`
	Seconds map[string]float64 `json:"seconds"`
	Range   []float64          `json:"range"`
}

func main() {
	b := &bench{}
	out := flag.String("out", "", "Markdown file of which a section is written; empty = standard output")
	flag.StringVar(&b.python, "python", "python3", "with torch 2 or later")
	flag.StringVar(&b.packages, "packages", "python", "folder with the package regroup")
	flag.StringVar(&b.binary, "binary", "bin/regroup", "that runs the jobs (make build)")
	flag.IntVar(&b.runs, "runs", 7, "of each fault")
	launchers := flag.String("launchers", "torchrun,regroup,spares,handler", "which are measured")
	faults := flag.String("faults", "worker,node,cut", "which are measured")
	flag.Parse()
	b.launchers, b.faults = strings.Split(*launchers, ","), strings.Split(*faults, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := b.all(ctx, *out); err != nil {
		fmt.Fprintln(os.Stderr, "torchrun:", err)
		os.Exit(1)
	}
}

func (b *bench) all(ctx context.Context, out string) error {
	version, err := b.run(ctx, "-c", "import torch; print(torch.__version__)")
	if err != nil {
		return err
	}
	b.printf(`Written by %s. PyTorch %s without a GPU, gloo. Measured on %s.

Seconds from the fault until all workers of the new group have made a step, medians, and the parts of the slowest worker. "Until the
process" is the notice, the end of the other workers, the rendezvous, and the start of the process. All settings are the launchers' defaults, the
last call of 30 s for further nodes among them. A worker is one of two of a node; a node is one of two with a worker each, and is killed with its
agent; the network is that between two nodes, one of which goes on alone. After three recoveries that do not come within 60 s a fault is not
tried again.

| fault | launcher | runs | no step after 60 s | median (min to max) | of torchrun's | aim | %s |
|---|---|---|---|---|---|---|%s
`, "`make bench-torchrun`", strings.TrimSpace(string(version)), report.Machine(), strings.Join(parts, " | "), strings.Repeat("---|", len(parts)))
	for _, fault := range b.faults {
		if err := b.fault(ctx, fault); err != nil {
			return err
		}
	}
	if out == "" {
		fmt.Print(b.text.String())
		return nil
	}
	return report.Section(out, "# Benchmarks\n", title, b.text.String())
}

// fault writes the rows of a fault of restart.py, which has several results.
func (b *bench) fault(ctx context.Context, fault string) error {
	rows, totals := map[string][]string{}, map[string]float64{}
	var names []string
	for _, launcher := range b.launchers {
		if fault == "cut" && (launcher == "spares" || launcher == "handler") {
			continue // the notice is the same as without, and dominates
		}
		args := []string{filepath.Join("bench", "restart.py"), "--json", "--launcher", launcher, "--fault", fault, "--runs", fmt.Sprint(b.runs)}
		if launcher == "spares" { // they are kept again some seconds after each start
			args = append(args, "--pause", "12")
		}
		text, err := b.run(ctx, args...)
		if err != nil {
			return err
		}
		all := map[string]result{}
		if err := json.Unmarshal(text, &all); err != nil {
			return fmt.Errorf("%s: %w", launcher, err)
		}
		for _, name := range []string{"worker killed", "node killed", "node joins", "network cut"} {
			r, ok := all[name]
			if !ok {
				continue
			}
			if launcher == b.launchers[0] {
				names = append(names, name)
			}
			if launcher == "torchrun" {
				totals[name] = r.Seconds["total"]
			}
			rows[name] = append(rows[name], row(name, launcher, r, totals[name]))
		}
	}
	for _, name := range names {
		b.printf("%s", strings.Join(rows[name], ""))
	}
	return nil
}

func row(name, launcher string, r result, torchrun float64) string {
	median, ratio := "none", "unknown"
	if len(r.Range) == 2 {
		median = fmt.Sprintf("%.2f (%.2f to %.2f)", r.Seconds["total"], r.Range[0], r.Range[1])
		if torchrun > 0 {
			ratio = fmt.Sprintf("%.2f", r.Seconds["total"]/torchrun)
		}
	}
	line := fmt.Sprintf("| %s | %s | %d | %d | %s | %s | %s |", name, launcherNames[launcher], r.Runs, r.None, median, ratio, aims[[2]string{name, launcher}])
	for _, p := range parts {
		if v, ok := r.Seconds[p]; ok {
			line += fmt.Sprintf(" %.2f |", v)
		} else {
			line += " |"
		}
	}
	return line + "\n"
}

func (b *bench) printf(format string, args ...any) { fmt.Fprintf(&b.text, format, args...) }

// run runs the interpreter in the folder of the package; returns its standard output.
func (b *bench) run(ctx context.Context, args ...string) ([]byte, error) {
	binary, err := filepath.Abs(b.binary)
	if err != nil {
		return nil, err
	}
	python, err := filepath.Abs(b.python)
	if err != nil {
		return nil, err
	}
	packages, err := filepath.Abs(b.packages)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, python, append([]string{"-W", "ignore"}, args...)...)
	cmd.Dir, cmd.Env = b.packages, append(os.Environ(), "PYTHONPATH="+packages, "REGROUP_BINARY="+binary)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", strings.Join(args, " "), bytes.TrimSpace(text))
	return text, nil
}
