// Command mnist trains a small network on handwritten digits with as many workers as there are, and
// continues when workers join and leave:
//
//	regroup run --workers 2:4 --recovery in-process -- mnist     # elastic
//	mnist                                                        # alone, without Regroup
//
// The network is a perceptron of 784, 128 and 10 units with ReLU, trained by SGD with momentum on
// the softmax cross-entropy. After four epochs it classifies about 95 % of the test part correctly.
// The data (10,000 digits of MNIST, see data/README.md) is part of the binary. The calls of package
// elastic are in train.go.
//
// A step takes 64 samples in every world, in micro-batches of 16 that are distributed over the
// workers, so the loss does not depend on their number or failures, but for rounding. When all of
// them die at once, it goes on from its checkpoint.
//
// With -reproducible not even a bit of the weights depends on the workers. It prints a hash of them
// in the end, which is the same for both:
//
//	mnist -reproducible
//	regroup run --workers 2:4 --recovery in-process -- mnist -reproducible
//
// With -witness too a worker that computes wrongly is found, and its slot gets no more work.
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

type config struct {
	epochs, batch, micro, commitEvery int
	rate                              float64
	seed                              uint64
	data                              string
	stepTime                          time.Duration
	reproducible                      bool
	witness                           int
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mnist:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	var c config
	flag.IntVar(&c.epochs, "epochs", 4, "passes over the training part")
	flag.IntVar(&c.batch, "batch", 64, "samples of one step, over all workers")
	flag.IntVar(&c.micro, "micro", 16, "samples that a worker computes at a time")
	flag.Float64Var(&c.rate, "lr", 0.1, "learning rate")
	flag.Uint64Var(&c.seed, "seed", 1, "seed of the order of the data and of the first weights")
	flag.IntVar(&c.commitEvery, "commit-every", 10, "steps between commits; a lost worker costs at most so many")
	flag.StringVar(&c.data, "data", "", "folder with the four IDX files; empty = those in the binary")
	losses := flag.String("losses", "", "file to which rank 0 writes the loss of each step")
	flag.DurationVar(&c.stepTime, "step-time", 0, "make a step last at least so long, so that people can watch")
	flag.BoolVar(&c.reproducible, "reproducible", false, "the same weights, to the bit, whatever happens to the workers; commits after each step")
	flag.IntVar(&c.witness, "witness", 0, "with -reproducible: how many micro-batches of a step a second worker computes, too, to find one that computes wrongly")
	flag.Parse()
	if c.epochs < 1 || c.batch < 1 || c.micro < 1 || c.commitEvery < 1 || c.rate <= 0 {
		return fmt.Errorf("-epochs, -batch, -micro, -commit-every and -lr must be positive")
	}
	if c.witness < 0 || c.witness > 0 && !c.reproducible {
		return fmt.Errorf("-witness is 0 or more, and needs -reproducible")
	}
	if c.reproducible { // or steps after the commit would be made again
		c.commitEvery = 1
	}
	train, test, err := load(c.data)
	if err != nil {
		return err
	}
	options, err := elastic.FromEnv()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	t := newTrainer(c, train, test, os.Stdout)
	if *losses != "" {
		var f *os.File
		if f, err = os.OpenFile(*losses, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		t.losses = f
	}
	if err := elastic.Run(ctx, options, t.state, t.train); errors.Is(err, elastic.ErrUnfinished) {
		return nil // the result is incomplete on this rank
	} else if err != nil {
		return err
	}
	if c.reproducible && t.rank == 0 {
		fmt.Println("weights", t.hash())
	}
	return samples.CheckLedger(t.state.Ledger())
}
