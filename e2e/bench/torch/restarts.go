package torch

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/e2e/report"
)

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
