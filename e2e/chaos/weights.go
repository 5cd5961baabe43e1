package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/network"
	"github.com/regroup-io/regroup/e2e/report"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/english"
)

// apart is the mean time between two faults of a history.
const apart = 700 * time.Millisecond

// weights is the result of reproducible jobs.
type weights struct {
	parameters
	histories   int
	took        time.Duration
	hash        string
	struck      map[string]int // by kind of fault
	generations int
	shrunk      int // generations with fewer than all workers
	cut         int // jobs that failed after their training was complete
}

// sameWeights trains so many jobs under faults, each with faults of its own until its end, and
// compares their weights with those of one worker without a fault.
func sameWeights(ctx context.Context, bin string, p parameters, histories int, log io.Writer) (w weights, err error) {
	w = weights{parameters: p, histories: histories, struck: map[string]int{}}
	return w, inDatacenter(ctx, bin, p, log, func(d *network.Datacenter) error {
		if p.program == "" {
			p.program = filepath.Join(bin, "mnist") + " -reproducible -epochs 2 -micro 4 -step-time 15ms"
			w.program = p.program
		}
		c := &chaos{Datacenter: d, log: log, begun: time.Now()}
		alone, err := c.start(ctx, p.program, "alone", spec.Workers{Min: 1, Max: 1})
		if err != nil {
			return err
		}
		if w.hash, _, err = alone.ends(ctx); err != nil {
			return err
		}
		for n := range histories {
			if err := c.history(ctx, p, p.seed+uint64(n), &w); err != nil {
				return fmt.Errorf("history %d: %w", n, err)
			}
		}
		w.took = time.Since(c.begun)
		return nil
	})
}

// history trains one job, under faults until it has ended.
func (c *chaos) history(ctx context.Context, p parameters, seed uint64, w *weights) error {
	j, err := c.start(ctx, p.program, "history", spec.Workers{Min: 1, Max: p.workers})
	if err != nil {
		return err
	}
	dice := rand.New(rand.NewPCG(seed, 1))
	for _, f := range schedule(seed, 1000) {
		if v, err := c.Client.Job(ctx, j.id); err == nil && v.State.Terminal() {
			break
		}
		hit, heal, err := f.kind.strike(c.Datacenter, f)
		if err != nil {
			return fmt.Errorf("%s: %w", f.kind.name, err)
		}
		if heal != nil {
			c.healing = append(c.healing, activeFault{time.Now().Add(f.hold), heal})
		}
		if hit != "" {
			w.struck[f.kind.name]++
		}
		if err := c.pass(ctx, time.Duration(dice.ExpFloat64()*float64(apart))); err != nil {
			return err
		}
	}
	for len(c.healing) > 0 {
		if err := c.pass(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	hash, v, err := j.ends(ctx)
	if err != nil {
		return err
	}
	fewer := 0
	for _, g := range v.Generations {
		if g.World < p.workers {
			fewer++
		}
	}
	w.generations, w.shrunk = w.generations+len(v.Generations), w.shrunk+fewer
	if cut(v) {
		w.cut++
	}
	fmt.Fprintf(c.log, "%7.1fs seed %d: %d generations, %s\n", time.Since(c.begun).Seconds(), seed, len(v.Generations), hash)
	if hash != w.hash {
		return fmt.Errorf("the weights of %s are %s, and those of one worker %s", j.id, hash, w.hash)
	}
	return nil
}

// reproducible is a job that prints the hash of its weights.
type reproducible struct {
	c      *chaos
	id     ident.JobID
	output string // the file that has what its workers print
}

func (c *chaos) start(ctx context.Context, program, name string, n spec.Workers) (*reproducible, error) {
	dir, err := os.MkdirTemp(c.Processes.Dir, name+"-")
	if err != nil {
		return nil, err
	}
	j := &reproducible{c: c, output: filepath.Join(dir, "output")}
	program = fmt.Sprintf("exec >> %s; exec %s", j.output, program)
	ctx, cancel := context.WithTimeoutCause(ctx, calm, errors.New("the job was not accepted"))
	defer cancel()
	j.id, err = c.Client.Submit(ctx, spec.Job{
		Name: name, Workers: n, Recovery: spec.RecoveryInProcess, Failures: spec.Failures{Max: &cluster.Unlimited}, Command: []string{"sh", "-c", program},
	})
	return j, err
}

// printed is what a worker says at its end.
var printed = regexp.MustCompile(`(?:weights |hash=|sha256 )([0-9a-f]{16,})`)

// ends waits for the end of a job, and returns the hash of its weights.
func (j *reproducible) ends(ctx context.Context) (hash string, v events.JobView, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("it has not ended two minutes after the last fault"))
	defer cancel()
	v, err = j.c.JobIs(ctx, j.id, "it ends", func(v events.JobView) bool { return v.State.Terminal() })
	if err != nil {
		return "", v, err
	}
	if v.State != events.JobStateSucceeded && !cut(v) {
		return "", v, fmt.Errorf("%s: %s (%s), want succeeded", j.id, v.State, v.Reason)
	}
	b, err := os.ReadFile(j.output)
	if err != nil {
		return "", v, err
	}
	for line := range strings.Lines(string(b)) {
		found := printed.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		if hash != "" && found[1] != hash {
			return "", v, fmt.Errorf("%s has two hashes: %s and %s", j.id, hash, found[1])
		}
		hash = found[1]
	}
	if hash == "" {
		return "", v, fmt.Errorf("%s has said no hash", j.id)
	}
	return hash, v, nil
}

// cut is whether a job failed after its training was complete: its workers were killed before they
// had exited.
func cut(v events.JobView) bool {
	return v.State == events.JobStateFailed && strings.Contains(v.Reason, "the training was reported complete")
}

// markdown is the section of the reliability document.
func (w weights) markdown() string {
	var b strings.Builder
	var words []string // without the folders of this machine
	for _, word := range strings.Fields(w.program) {
		if word != "env" && !strings.Contains(word, "=/") {
			words = append(words, filepath.Base(word))
		}
	}
	faults := 0
	for _, n := range w.struck {
		faults += n
	}
	fmt.Fprintf(&b, `Measured on %s. Seeds from %d, %s in %s: `+"`%s`"+` with one to %d workers on four nodes, under %d faults at random times until the end.

All trainings were completed, with **one hash** of their weights, %s, which is that of one worker without a fault. Of %d all workers were killed between that and their exit, which fails a job. They had %d generations, %d of them with fewer than %d workers.

| fault | struck |
|---|---|
`, report.Machine(), w.seed, english.Plural(w.histories, "job"), w.took.Round(time.Second),
		strings.Join(words, " "), w.workers, faults, w.hash, w.cut, w.generations, w.shrunk, w.workers)
	for _, k := range kinds {
		fmt.Fprintf(&b, "| %s | %d |\n", k.name, w.struck[k.name])
	}
	return b.String()
}
