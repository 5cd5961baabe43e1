// Package torch measures what users of torch.distributed and of torchrun notice, with the programs
// of python/bench: how long a job stands still when a worker is killed, how fast a group changes
// its members, operations on a machine that is busy, how late timeouts are, and jobs that are
// restarted as a whole or go on in their processes, beside torchrun and torchft.
package torch

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/report"
)

// bench is one suite.
type bench struct {
	python
	kills, storm, runs int
	launchers, faults  []string
	text               strings.Builder
}

// part is a part of a suite, which writes its text.
type part func(context.Context) error

// section writes a section of some parts.
func (b *bench) section(ctx context.Context, r *report.Report, title string, parts ...part) error {
	version, err := b.run(ctx, "-c", "import torch; print(torch.__version__)")
	if err != nil {
		return err
	}
	b.text.Reset()
	b.printf("PyTorch %s without a GPU.\n", version)
	for _, measure := range parts {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return r.Section(title, b.text.String())
}

// Suite measures groups of torch.distributed that follow a job.
func Suite(f *flag.FlagSet) func(context.Context, *report.Report) error {
	b := &bench{}
	b.flags(f)
	f.IntVar(&b.kills, "kills", 30, "in each job whose recovery is measured")
	f.IntVar(&b.storm, "storm", 100, "kills in the job in which they do not wait for recovery")
	return func(ctx context.Context, r *report.Report) error {
		b.binary = r.Bin
		return b.section(ctx, r, "PyTorch", b.recovery, b.reconfigure, b.busy, b.limits)
	}
}

func (b *bench) printf(format string, args ...any) { fmt.Fprintf(&b.text, format, args...) }

// followed is the result of follow.py, and of torchft_kills.py.
type followed struct {
	Kills, Generations, Epochs, Missing, Repeated int

	Version  string                                  // of torchft
	Ended    int                                     `json:"ended_though_not_killed"` // torchft's alone
	EqualOn  int                                     `json:"equal_weights_on"`
	Replaced int                                     `json:"replaced_though_not_killed_at_most"`
	Times    struct{ Min, Median, P99, Max float64 } `json:"kill_to_step_ms"`
}

func (b *bench) recovery(ctx context.Context) error {
	b.printf(`
A job of three workers, one of which is killed again and again; ms from SIGKILL to the last survivor's next step. A step sleeps for
40 ms, and then computes, reduces, commits and compares all weights. Killed at the end: the worker kills itself when it has computed a step, as
the others have; otherwise what was left of the interrupted step is in the time too.

| group | killed | kills | min | median | p99 | max | goal |
|---|---|---|---|---|---|---|---|
`)
	for _, c := range []struct{ backend, name, goal string }{
		{"gloo", "follow(\"gloo\")", "median 120, p99 300"},
		{"regroup", "follow(\"regroup\")", "median 80, p99 150"},
		{"horovod", "Horovod's interface", "median 80, p99 150"},
	} {
		for _, end := range []bool{true, false} {
			args, when := []string{"--backend", c.backend, "--kills", strconv.Itoa(b.kills)}, "at any time"
			if end {
				args, when = append(args, "--at-end"), "at the end"
			}
			var r followed
			if err := b.measure(ctx, &r, "follow.py", args...); err != nil {
				return err
			}
			b.printf("| %s | %s | %d | %.0f | %.0f | %.0f | %.0f | %s |\n", c.name, when, r.Kills, r.Times.Min, r.Times.Median, r.Times.P99, r.Times.Max, c.goal)
		}
	}
	if err := b.overlap(ctx); err != nil {
		return err
	}
	b.printf(`
Kills at any moment, also while a group forms or a newcomer starts; one of the others has trained.

| group | kills | generations | samples missing | samples repeated | ranks with equal weights at the end | processes replaced that were not killed |
|---|---|---|---|---|---|---|
`)
	for _, backend := range []string{"gloo", "regroup"} {
		var r followed
		if err := b.measure(ctx, &r, "follow.py", "--backend", backend, "--storm", strconv.Itoa(b.storm)); err != nil {
			return err
		}
		b.printf("| follow(%q) | %d | %d | %d | %d | %d | at most %d |\n", backend, r.Kills, r.Generations, r.Missing, r.Repeated, r.EqualOn, r.Replaced)
	}
	return nil
}

// What NCCL was measured to take on a GPU (docs/gpu.md), in seconds.
const (
	abortTakes   = 0.55
	connectTakes = 0.15
)

func (b *bench) overlap(ctx context.Context) error {
	b.printf(`
The same with a stand-in for NCCL, gloo with an abort of %g s and connections that take %g s, which is what NCCL was measured to take
([gpu.md](gpu.md)); killed at the end. The stand-in sleeps, and uses no GPU.

| the old group ends | kills | min | median | p99 | max |
|---|---|---|---|---|---|
`, abortTakes, connectTakes)
	for _, c := range []struct {
		when string
		args []string
	}{{"before the next one begins", []string{"--apart"}}, {"beside it", nil}} {
		var r followed
		args := append([]string{
			"--backend", "fakenccl", "--abort", fmt.Sprint(abortTakes), "--connect", fmt.Sprint(connectTakes),
			"--kills", strconv.Itoa(b.kills), "--at-end",
		}, c.args...)
		if err := b.measure(ctx, &r, "follow.py", args...); err != nil {
			return err
		}
		b.printf("| %s | %d | %.0f | %.0f | %.0f | %.0f |\n", c.when, r.Kills, r.Times.Min, r.Times.Median, r.Times.P99, r.Times.Max)
	}
	return nil
}

func (b *bench) reconfigure(ctx context.Context) error {
	b.printf(`
A group that changes its members: reconfigure and one all_reduce of 4 bytes, ms, in turn in one run.

| ranks | regroup (min to max) | gloo (min to max) | gloo/regroup | goal |
|---|---|---|---|---|
`)
	for _, ranks := range []int{2, 3} {
		var r struct {
			Ours       float64    `json:"regroup_ms"`
			OursRange  [2]float64 `json:"regroup_range_ms"`
			Gloos      float64    `json:"gloo_ms"`
			GloosRange [2]float64 `json:"gloo_range_ms"`
		}
		if err := b.measure(ctx, &r, "reconfigure.py", "--ranks", strconv.Itoa(ranks)); err != nil {
			return err
		}
		goal := "none"
		if ranks == 2 {
			goal = "median 3 ms"
		}
		b.printf("| %d | %.2f (%.2f to %.2f) | %.2f (%.2f to %.2f) | %.1f | %s |\n", ranks,
			r.Ours, r.OursRange[0], r.OursRange[1], r.Gloos, r.GloosRange[0], r.GloosRange[1], r.Gloos/r.Ours, goal)
	}
	return nil
}

func (b *bench) busy(ctx context.Context) error {
	b.printf(`
Three ranks beside four processes that compute without end; medians of the rounds' medians in ms, and the median ratio of a round.

| operation | regroup | gloo | gloo/regroup |
|---|---|---|---|
`)
	var r struct {
		Rows []struct {
			Operation string
			Ours      float64 `json:"regroup_ms"`
			Gloos     float64 `json:"gloo_ms"`
			Ratio     float64
		}
	}
	if err := b.measure(ctx, &r, "busy.py"); err != nil {
		return err
	}
	for _, row := range r.Rows {
		b.printf("| %s | %.3f | %.3f | %.2f |\n", row.Operation, row.Ours, row.Gloos, row.Ratio)
	}
	return nil
}

func (b *bench) limits(ctx context.Context) error {
	b.printf(`
How late a timeout of one second ends an all_reduce of 1 MiB for which the other rank does not come, ms.

| timeout | backend | trials | min | median | max | goal |
|---|---|---|---|---|---|---|
`)
	var r struct {
		Trials int
		Rows   []struct {
			Timeout, Backend string
			Late             float64    `json:"late_ms"`
			Range            [2]float64 `json:"range_ms"`
		}
	}
	if err := b.measure(ctx, &r, "limits.py"); err != nil {
		return err
	}
	for _, row := range r.Rows {
		goal := "none"
		if row.Backend == "regroup" {
			goal = "100 ms"
		}
		b.printf("| %s | %s | %d | %.1f | %.1f | %.1f | %s |\n", row.Timeout, row.Backend, r.Trials, row.Range[0], row.Late, row.Range[1], goal)
	}
	return nil
}

// python runs the programs of python/bench.
type python struct {
	interpreter string
	packages    string // folder with the package regroup and its library
	binary      string // folder of the binary that runs the jobs
	torchft     string // folder with a further package
}

func (p *python) flags(f *flag.FlagSet) {
	f.StringVar(&p.interpreter, "python", "python3", "with torch 2.14 or later")
	f.StringVar(&p.packages, "packages", "python", "folder with the package regroup and its library (make libregroup)")
}

// measure runs a program of python/bench, which prints one JSON object.
func (p *python) measure(ctx context.Context, result any, program string, args ...string) error {
	text, err := p.run(ctx, append([]string{filepath.Join("bench", program), "--json"}, args...)...)
	if err == nil {
		err = json.Unmarshal([]byte(text), result)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	return nil
}

// run runs the interpreter in the folder of the package; returns its standard output, which it also
// shows on standard error.
func (p *python) run(ctx context.Context, args ...string) (string, error) {
	var absolute [3]string
	for i, path := range []string{p.interpreter, p.packages, p.torchft} {
		var err error
		if absolute[i] = path; strings.Contains(path, "/") || i > 0 && path != "" { // otherwise of PATH, or none
			if absolute[i], err = filepath.Abs(path); err != nil {
				return "", err
			}
		}
	}
	cmd := exec.CommandContext(ctx, absolute[0], append([]string{"-W", "ignore"}, args...)...)
	cmd.Dir = p.packages
	cmd.Env = append(os.Environ(), "PYTHONPATH="+strings.Trim(absolute[1]+":"+absolute[2], ":"), "REGROUP_BINARY="+filepath.Join(p.binary, "regroup"))
	text, err := cluster.Output(cmd)
	if err == nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", strings.Join(args, " "), text)
	}
	return text, err
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
	Limit   float64            `json:"limit"` // after which a recovery counts as none
	Seconds map[string]float64 `json:"seconds"`
	Range   []float64          `json:"range"`
}

// Launchers measures restarts beside torchrun, and jobs whose survivors go on beside torchft.
func Launchers(f *flag.FlagSet) func(context.Context, *report.Report) error {
	b := &bench{}
	b.flags(f)
	f.IntVar(&b.runs, "runs", 7, "of each fault")
	launchers := f.String("launchers", "torchrun,regroup,spares,handler", "which are measured")
	faults := f.String("faults", "worker,node,cut", "which are measured")
	f.IntVar(&b.kills, "kills", 30, "of each job that goes on in its processes; 0 = none of them")
	f.StringVar(&b.torchft, "torchft", "", "folder with torchft, which is measured beside them; empty = it is not")
	return func(ctx context.Context, r *report.Report) error {
		b.binary = r.Bin
		comma := func(c rune) bool { return c == ',' }
		b.launchers, b.faults = strings.FieldsFunc(*launchers, comma), strings.FieldsFunc(*faults, comma)
		if len(b.faults) > 0 {
			if err := b.section(ctx, r, "Restarts, beside torchrun", b.restarts); err != nil {
				return err
			}
		}
		if b.kills == 0 {
			return nil
		}
		return b.section(ctx, r, "Survivors, beside torchft", b.survivors)
	}
}

func (b *bench) restarts(ctx context.Context) error {
	b.printf(`
Seconds from the fault until all workers of the new group have made a step, with gloo: medians, and the parts of the slowest worker. "Until the
process" is the notice, the end of the other workers, the rendezvous, and the start of the process. All settings are the launchers' defaults, the
last call of 30 s for further nodes among them. A worker is one of two of a node; a node is one of two with a worker each, and is killed with its
agent; the network is that between two nodes, one of which goes on alone. After three recoveries that do not come within 60 s a fault is not
tried again.

| fault | launcher | runs | no step after 60 s | median (min to max) | of torchrun's | aim | %s |
|---|---|---|---|---|---|---|%s
`, strings.Join(parts, " | "), strings.Repeat("---|", len(parts)))
	for _, fault := range b.faults {
		if err := b.fault(ctx, fault); err != nil {
			return err
		}
	}
	return nil
}

// fault writes the rows of a fault of restart.py, which has several results.
func (b *bench) fault(ctx context.Context, fault string) error {
	rows, reference := map[string][]string{}, map[string]result{}
	var names []string
	for _, launcher := range b.launchers {
		if fault == "cut" && (launcher == "spares" || launcher == "handler") {
			continue // the notice is the same as without, and dominates
		}
		args := []string{"--launcher", launcher, "--fault", fault, "--runs", strconv.Itoa(b.runs)}
		if launcher == "spares" { // they are kept again some seconds after each start
			args = append(args, "--pause", "12")
		}
		all := map[string]result{}
		if err := b.measure(ctx, &all, "restart.py", args...); err != nil {
			return err
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
				reference[name] = r
			}
			rows[name] = append(rows[name], row(name, launcher, r, reference[name]))
		}
	}
	for _, name := range names {
		b.printf("%s", strings.Join(rows[name], ""))
	}
	return nil
}

// row is the row of a result beside torchrun's, which may be the zero value.
func row(name, launcher string, r, torchrun result) string {
	median, ratio := "none", "unknown"
	if len(r.Range) == 2 {
		median = fmt.Sprintf("%.2f (%.2f to %.2f)", r.Seconds["total"], r.Range[0], r.Range[1])
		switch {
		case len(torchrun.Range) == 2:
			ratio = fmt.Sprintf("%.2f", r.Seconds["total"]/torchrun.Seconds["total"])
		case torchrun.None > 0: // it takes longer than the limit
			ratio = fmt.Sprintf("below %.2f", r.Seconds["total"]/torchrun.Limit)
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

// survivors measures jobs whose survivors go on in their processes.
func (b *bench) survivors(ctx context.Context) error {
	b.printf(`
Jobs whose survivors go on in their processes: three workers, one of which is killed at any time, again and again, and started anew. ms from
SIGKILL to the last survivor's next step of two, the step's 40 ms and what was left of the interrupted one included.%s

| group | kills | min | median | p99 | max | of torchft's |
|---|---|---|---|---|---|---|
`, b.aboutTorchft())
	reference := 0.0
	for _, c := range b.groups() {
		var r followed
		if err := b.measure(ctx, &r, c.program, append(c.args, "--kills", strconv.Itoa(b.kills))...); err != nil {
			return err
		}
		if c.reference {
			reference = r.Times.Median
			c.name += " " + r.Version
		}
		kills, ratio := strconv.Itoa(r.Kills), "unknown"
		if r.Kills < b.kills {
			kills += fmt.Sprintf(" of %d: then %d ended that nobody had killed", b.kills, r.Ended)
		}
		if r.Kills == 0 {
			b.printf("| %s | %s | | | | | |\n", c.name, kills)
			continue
		}
		if reference > 0 {
			ratio = fmt.Sprintf("%.2f", r.Times.Median/reference)
		}
		b.printf("| %s | %s | %.0f | %.0f | %.0f | %.0f | %s |\n", c.name, kills, r.Times.Min, r.Times.Median, r.Times.P99, r.Times.Max, ratio)
	}
	return nil
}

type group struct {
	name, program string
	args          []string
	reference     bool
}

func (b *bench) groups() []group {
	all := []group{
		{name: `follow("gloo")`, program: "follow.py", args: []string{"--backend", "gloo"}},
		{name: `follow("regroup")`, program: "follow.py", args: []string{"--backend", "regroup"}},
		{name: "Horovod's interface", program: "follow.py", args: []string{"--backend", "horovod"}},
	}
	if b.torchft != "" {
		all = append([]group{{name: "torchft", program: "torchft_kills.py", reference: true}}, all...)
	}
	return all
}

func (b *bench) aboutTorchft() string {
	if b.torchft == "" {
		return ""
	}
	return ` torchft's
lighthouse looks every 10 ms whether a quorum is there, and waits 100 ms for a replica that is missing; its other times are its defaults. Its
model is a PureDistributedDataParallel; with its DistributedDataParallel the survivors ended with an AssertionError after a few kills. What it
does not do is in none of the figures: samples are not accounted for.`
}
