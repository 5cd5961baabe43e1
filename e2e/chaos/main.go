// Command chaos trains one job under hundreds of random faults and proves that no sample was lost;
// or, with -histories, many reproducible ones, and proves that all have the same weights.
//
//	go run ./e2e/chaos -seed 7 -out docs/reliability.md
//	go run ./e2e/chaos -histories 100 -out docs/reliability.md
//	go run ./e2e/chaos -histories 20 -workers 3 -program "python3 train.py"
//
// It needs Linux, root and the binaries (make build). The same seed gives the same faults.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/network"
	"github.com/regroup-io/regroup/e2e/program"
	"github.com/regroup-io/regroup/e2e/record"
	"github.com/regroup-io/regroup/e2e/report"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/wait"
)

func main() {
	out := flag.String("out", "", "Markdown file to write the section into; empty = standard output")
	bin := flag.String("bin", "bin", "folder of the binaries")
	var p parameters
	flag.Uint64Var(&p.seed, "seed", uint64(time.Now().UnixNano())%1_000_000, "of the faults")
	flag.IntVar(&p.faults, "faults", 200, "how many")
	histories := flag.Int("histories", 0, "train so many reproducible jobs under faults instead")
	flag.StringVar(&p.program, "program", "", "what these jobs execute, for the shell, which prints weights HASH at its end; empty = mnist")
	flag.IntVar(&p.workers, "workers", workers, "of these jobs, at most")
	flag.BoolVar(&p.guarded, "guarded", false, "every process has an identity of its own, and connections are encrypted")
	program.Main("chaos", func(ctx context.Context) error { return run(ctx, *out, *bin, p, *histories, os.Stderr) })
}

func run(ctx context.Context, out, bin string, p parameters, histories int, log io.Writer) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "chaos -seed %d -faults %d -histories %d -guarded=%t\n", p.seed, p.faults, histories, p.guarded)
	section := "Chaos"
	if p.guarded {
		section = "Chaos with identities and TLS"
	}
	var r interface{ markdown() string }
	if histories > 0 {
		if section = "The same weights under chaos"; p.program != "" {
			section = "The same weights of a program with PyTorch under chaos"
		}
		r, err = sameWeights(ctx, bin, p, histories, log)
	} else {
		r, err = unleash(ctx, bin, p, log)
	}
	if err != nil {
		return fmt.Errorf("-seed %d: %w", p.seed, err)
	}
	text := r.markdown()
	fmt.Fprint(log, text)
	if out == "" {
		return nil
	}
	return report.Section(out, report.Reliability, section, text)
}

const (
	workers = 8
	// restart is the delay of a service manager before it restarts a process.
	restart = 500 * time.Millisecond
	// calm is how long the job may take to make steps again after a fault is healed.
	calm = time.Minute
)

// happened is the record of one fault.
type happened struct {
	kind, hit  string
	from, to   time.Time // to: healed, and steps were made again
	overlapped bool
}

// parameters of a run.
type parameters struct {
	seed    uint64
	faults  int
	guarded bool // every process has an identity of its own, and connections are encrypted
	// Of reproducible jobs: their command line for the shell, and most workers.
	program string
	workers int
}

// chaos is one run.
type chaos struct {
	*network.Datacenter
	run *cluster.Run
	log io.Writer

	done    []happened
	healing []activeFault
	rushed  bool // the last fault overlaps the next one
	begun   time.Time
}

// activeFault is a fault that is not healed yet.
type activeFault struct {
	until time.Time
	heal  func() error
}

// result is the result of a run.
type result struct {
	parameters
	took    time.Duration
	done    []happened
	history *record.History
	account record.Account
	facts   int
}

// inDatacenter does something in a data centre of four nodes with two slots each.
func inDatacenter(ctx context.Context, bin string, p parameters, log io.Writer, do func(*network.Datacenter) error) error {
	dir, err := os.MkdirTemp("", "regroup-chaos-")
	if err != nil {
		return err
	}
	datacenter, err := network.Build(ctx, network.Options{Options: cluster.Options{
		Bin: bin, Dir: dir, Nodes: 4, Slots: 2, Restart: restart, Name: "chaos", Guarded: p.guarded,
	}})
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	err = errors.Join(do(datacenter), datacenter.Close())
	for _, name := range datacenter.Processes.Races() {
		err = errors.Join(err, fmt.Errorf("%s: data race: %s", name, datacenter.Processes.Log(name, 4000)))
	}
	if err == nil {
		return os.RemoveAll(dir)
	}
	fmt.Fprintln(log, "logs and records are kept in", dir)
	return err
}

// unleash runs one job of eight workers on four nodes under faults.
func unleash(ctx context.Context, bin string, p parameters, log io.Writer) (res result, err error) {
	return res, inDatacenter(ctx, bin, p, log, func(d *network.Datacenter) (err error) {
		res, err = train(ctx, d, p, log)
		return err
	})
}

func train(ctx context.Context, datacenter *network.Datacenter, p parameters, log io.Writer) (res result, err error) {
	c := &chaos{Datacenter: datacenter, log: log, begun: time.Now()}
	c.run, err = c.Train(ctx, cluster.Training{
		Name: "chaos", Workers: spec.Workers{Min: 1, Max: workers}, Samples: 6000, Batch: 64, CommitEvery: 5, StepTime: 25 * time.Millisecond,
	})
	if err != nil {
		return res, err
	}
	if err := c.steps(ctx, calm); err != nil {
		return res, err
	}
	for i, f := range schedule(p.seed, p.faults) {
		if err := c.strike(ctx, i, f); err != nil {
			return res, err
		}
	}
	if err := c.waitHealthy(ctx); err != nil {
		return res, err
	}
	res = result{parameters: p, done: c.done, took: time.Since(c.begun)}
	return c.prove(ctx, res)
}

// strike injects one fault, and waits until its job trains again, unless the next fault overlaps
// it.
func (c *chaos) strike(ctx context.Context, i int, f fault) error {
	h := happened{kind: f.kind.name, from: time.Now(), overlapped: f.rush || c.rushed || len(c.healing) > 0}
	c.rushed = f.rush
	hit, heal, err := f.kind.strike(c.Datacenter, f)
	if err != nil {
		return fmt.Errorf("fault %d, %s: %w", i, f.kind.name, err)
	}
	h.hit = hit
	fmt.Fprintf(c.log, "%7.1fs %3d %s: %s for %v\n", time.Since(c.begun).Seconds(), i+1, f.kind.name, hit, f.hold.Round(time.Millisecond))
	if heal != nil {
		c.healing = append(c.healing, activeFault{h.from.Add(f.hold), heal})
	}
	if f.rush {
		err = c.pass(ctx, f.hold/2)
	} else {
		err = c.steps(ctx, calm)
	}
	h.to = time.Now()
	c.done = append(c.done, h)
	return err
}

// pass waits, and heals faults that are due.
func (c *chaos) pass(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(d)
	for {
		now, next := time.Now(), end
		var wrong error
		c.healing = slices.DeleteFunc(c.healing, func(f activeFault) bool {
			if !now.Before(f.until) {
				wrong = errors.Join(wrong, f.heal())
				return true
			}
			if f.until.Before(next) {
				next = f.until
			}
			return false
		})
		if wrong != nil || !now.Before(end) {
			return wrong
		}
		if !wait.Sleep(ctx, time.Until(next)) {
			return context.Cause(ctx)
		}
	}
}

// steps waits until everything is healed and the job has made some steps since.
func (c *chaos) steps(ctx context.Context, limit time.Duration) error {
	for len(c.healing) > 0 {
		if err := c.pass(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	within, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("after %v of calm", limit))
	defer cancel()
	err := c.run.Makes(within, 10*workers)
	if err != nil {
		v, lost := c.Client.Job(ctx, c.run.Job)
		err = errors.Join(err, lost, fmt.Errorf("the job is %s (%s) in generation %s", v.State, v.Reason, v.Generation))
	}
	return err
}

// waitHealthy waits until everything is as it was before the first fault.
func (c *chaos) waitHealthy(ctx context.Context) error {
	if err := c.steps(ctx, calm); err != nil {
		return err
	}
	if err := c.HealAll(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("not all is well two minutes after the last fault"))
	defer cancel()
	if err := c.Ready(ctx); err != nil {
		return err
	}
	_, err := c.run.Trains(ctx, 0, workers)
	return err
}

// prove ends the job and verifies its result.
func (c *chaos) prove(ctx context.Context, r result) (result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("the end was not proven within two minutes"))
	defer cancel()
	if err := c.run.Finish(); err != nil {
		return r, err
	}
	var err, replay error
	r.history, r.account, err = c.run.Ends(ctx)
	r.facts, replay = c.Same(ctx, c.run.Job)
	return r, errors.Join(err, replay)
}

// markdown is the section of the reliability document.
func (r result) markdown() string {
	var b strings.Builder
	guarded := ""
	if r.guarded {
		guarded = ",\nwith identities and TLS"
	}
	fmt.Fprintf(&b, `Measured on %s. Seed %d, %d faults in %s: one job of eight workers on four nodes, three brokers, two replicas of every service%s.
What was killed is started again after %v, as a service manager does it; every fourth fault comes while the one before is still there.

The job succeeded. By the records of its workers: %d steps in %d generations, %d epochs, samples missing %d, repeated %d; %d steps were made in vain and again, %d commits were lost with all who had them.
%d facts, replayed, end in the same states as the services' documents: nodes, placement, round with its members, job, incidents. No process was left.

| fault | struck | recovered | without a step, median | max | steps made again, most |
|---|---|---|---|---|---|
`, report.Machine(), r.seed, len(r.done), r.took.Round(time.Second), guarded, restart,
		r.account.Steps, r.account.Generations, r.account.Epochs, r.account.Missing, r.account.Repeated, r.account.Void, r.account.Uncommitted, r.facts)
	steps := r.history.Steps()
	for _, k := range kinds {
		var pauses []time.Duration
		struck, lost := 0, 0
		for _, h := range r.done {
			if h.kind != k.name || h.hit == "" {
				continue
			}
			struck++
			lost = max(lost, r.history.Lost(h.from, h.to))
			if !h.overlapped {
				pauses = append(pauses, record.Longest(steps, h.from, h.to).Length())
			}
		}
		median, most := "not seen", "not seen"
		if len(pauses) > 0 {
			median, most = fmt.Sprintf("%d ms", report.Quantile(pauses, 0.5).Milliseconds()), fmt.Sprintf("%d ms", report.Quantile(pauses, 1).Milliseconds())
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %s | %s | %d |\n", k.name, struck, struck, median, most, lost)
	}
	b.WriteString("\nTimes are of faults that came alone; while a fault lasts (up to 15 s) training may not be able to go on.\n")
	return b.String()
}
