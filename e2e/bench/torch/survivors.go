package torch

import (
	"context"
	"fmt"
	"strconv"
)

// survived is what follow.py and torchft_kills.py say of one job.
type survived struct {
	Version string // of torchft
	Kills   int
	Ended   int                                     `json:"ended_though_not_killed"` // torchft's alone
	Times   struct{ Min, Median, P99, Max float64 } `json:"kill_to_step_ms"`
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
		var r survived
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
