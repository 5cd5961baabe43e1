// Command counter is the smallest elastic program: each step takes some samples, adds up a small
// vector over all workers and commits periodically. It learns nothing, so the cost of a fault is
// measured without the cost of machine learning. The result is checked: the counted samples must be
// exact, however often the members changed.
//
//	regroup run --workers 2:4 --recovery in-process -- counter -steps 1000 -step-time 10ms
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/samples"
)

// counter is the program and its state.
type counter struct {
	steps, samples, batch, commitEvery, dim int
	stepTime                                time.Duration
	frozen, moving                          int
	loopAt                                  uint64
	until                                   string
	beforeStep                              func(s *elastic.Session) // test hook; may be nil
	quiet                                   bool

	totals []float64 // sums of the vector: every step adds the same to each element
	weight []byte    // the ballast: frozen, then moving
	grads  []float32
	state  *elastic.State
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "counter:", err)
		os.Exit(1)
	}
}

func run() error {
	var c counter
	flag.IntVar(&c.steps, "steps", 200, "steps to make")
	flag.StringVar(&c.until, "until", "", "make steps until a worker sees this file, -steps at least")
	flag.DurationVar(&c.stepTime, "step-time", 10*time.Millisecond, "how long the work of a step lasts")
	flag.IntVar(&c.samples, "samples", 10000, "samples of an epoch")
	flag.IntVar(&c.batch, "batch", 64, "samples of a step, over all workers")
	flag.IntVar(&c.commitEvery, "commit-every", 10, "steps between commits")
	flag.IntVar(&c.dim, "dim", 1000, "elements of the vector, four bytes each")
	flag.IntVar(&c.frozen, "frozen", 0, "bytes of state that never change, like weights that are not trained")
	flag.IntVar(&c.moving, "moving", 0, "bytes of state that every step changes, like the momentum of an optimizer")
	flag.Uint64Var(&c.loopAt, "loop-at", 0, "step in which rank 1 of the first generation computes for ever: a bug, to see it found (0 = none)")
	flag.BoolVar(&c.quiet, "quiet", false, "print the last line only")
	flag.Parse()
	if c.steps < 1 || c.samples < 1 || c.batch < 1 || c.commitEvery < 1 || c.dim < 1 || c.stepTime < 0 || c.frozen < 0 || c.moving < 0 {
		return errors.New("-steps, -samples, -batch, -commit-every and -dim must be positive, -step-time, -frozen and -moving not negative")
	}
	options, err := elastic.FromEnv()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	c.prepare()
	if err := elastic.Run(ctx, options, c.state, c.train); errors.Is(err, elastic.ErrUnfinished) {
		return nil // the result is incomplete on this rank
	} else if err != nil {
		return err
	}
	return c.check()
}

func (c *counter) prepare() {
	c.totals, c.grads = make([]float64, c.dim), make([]float32, c.dim+1) // the last is a vote: may it end?
	c.state = elastic.NewState(samples.NewSampler(uint64(c.samples), 1))
	elastic.Tensor(c.state, "totals", c.totals)
	c.weight = make([]byte, c.frozen+c.moving)
	for i := range c.weight {
		c.weight[i] = byte(i >> 12)
	}
	elastic.Tensor(c.state, "weight", c.weight)
}

// train makes steps from the current state on.
func (c *counter) train(ctx context.Context, s *elastic.Session) error {
	for mayEnd := c.until == ""; s.Step() < uint64(c.steps) || !mayEnd; {
		if c.beforeStep != nil {
			c.beforeStep(s)
		}
		b := s.Next(c.batch)
		for c.loopAt > 0 && s.Step() == c.loopAt && s.Rank == 1 && s.Generation == 1 {
			c.totals[0] += 0 // outside of any collective: the others wait without an error
		}
		if err := c.work(ctx); err != nil {
			return err
		}
		for i := range c.totals {
			c.grads[i] = 1 // the mean over all samples is 1
		}
		c.grads[c.dim] = 0
		if c.ends() {
			c.grads[c.dim] = 1
		}
		if err := s.AverageGradients(ctx, b, c.grads); err != nil {
			return err
		}
		for i := range c.totals {
			c.totals[i] += float64(c.grads[i])
		}
		mayEnd = c.until == "" || c.grads[c.dim] > 0
		for i := c.frozen; i < len(c.weight); i += 512 {
			c.weight[i]++
		}
		if s.Rank == 0 && s.Step()%20 == 0 {
			s.Report(map[string]float64{"total": c.totals[0]})
			if !c.quiet {
				fmt.Printf("step %d world %d generation %d\n", s.Step(), s.World, s.Generation)
			}
		}
		if s.CommitDue(c.commitEvery) {
			if err := s.Commit(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// ends says whether the file that -until names is there.
func (c *counter) ends() bool {
	if c.until == "" {
		return false
	}
	_, err := os.Stat(c.until)
	return err == nil
}

// work simulates computing.
func (c *counter) work(ctx context.Context) error {
	select {
	case <-time.After(c.stepTime):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// check compares the totals with the steps, and the ledger with the data set.
func (c *counter) check() error {
	ledger := c.state.Ledger()
	if err := samples.CheckLedger(ledger); err != nil {
		return err
	}
	var consumed uint64
	for _, e := range ledger.Epochs {
		consumed += e.Count
	}
	for i, total := range c.totals {
		if diff := total - float64(c.state.Step()); diff > 0.01 || diff < -0.01 {
			return fmt.Errorf("element %d is %v after %d steps", i, total, c.state.Step())
		}
	}
	fmt.Printf("done: step %d, %d samples in %d epochs, none missing, none repeated\n", c.state.Step(), consumed, len(ledger.Epochs))
	return nil
}
