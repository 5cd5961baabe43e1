package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/regroup-io/regroup/e2e/network"
	"github.com/regroup-io/regroup/e2e/record"
	"github.com/regroup-io/regroup/e2e/report"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

const (
	betweenKills  = 250 * time.Millisecond
	brokerEvery   = 20              // one kill in brokerEvery hits a broker
	betweenBroker = 5 * time.Second // two of three brokers must be there, and elect
)

// control is an experiment: does killing the control plane affect training?
type control struct {
	*network.Datacenter
	killed, brokers, leaders int
	lastBroker               time.Time
}

// undisturbed kills services and brokers with SIGKILL while a job with fixed members trains,
// alternates that with runs without kills, and compares the durations of steps.
func undisturbed(ctx context.Context, out, bin string, kills, runs int) error {
	var calm, stormy []time.Duration
	var text string
	err := laboratory(ctx, network.Options{Bin: bin, Nodes: 2, Slots: 2, Name: "bench", Restart: 100 * time.Millisecond}, func(datacenter *network.Datacenter) error {
		c := &control{Datacenter: datacenter}
		for run := range runs {
			part := kills*(run+1)/runs - kills*run/runs
			began := time.Now()
			steps, err := c.train(ctx, func() error { return c.storm(ctx, part) })
			if err != nil {
				return fmt.Errorf("run %d, after %d kills: %w", run, c.killed, err)
			}
			stormy = append(stormy, steps...)
			as := time.Since(began)
			steps, err = c.train(ctx, func() error { return pass(ctx, as) })
			if err != nil {
				return fmt.Errorf("undisturbed run %d: %w", run, err)
			}
			calm = append(calm, steps...)
			fmt.Fprintf(os.Stderr, "bench: %d of %d control processes killed; p99 of a step %v, undisturbed %v\n", c.killed, kills,
				report.Quantile(stormy, 0.99).Round(time.Millisecond), report.Quantile(calm, 0.99).Round(time.Millisecond))
		}
		text = fmt.Sprintf("%d kills with SIGKILL, %d of them of brokers (%d of the one that led the facts), one every %v, in %d runs of a job whose members do not change; started again after 100 ms. "+
			"As many runs without kills, in turn. Every job succeeded in one generation, with no sample missing or repeated.\n\n", c.killed, c.brokers, c.leaders, betweenKills, runs)
		return nil
	})
	if err != nil {
		return err
	}
	more := report.Quantile(stormy, 0.99) - report.Quantile(calm, 0.99)
	return write(out, "Kills of the control plane", text+table()+row("step of 10 ms, undisturbed", calm, "none")+row("step of 10 ms, control processes killed", stormy, "none")+
		fmt.Sprintf("| p99 above undisturbed | | | %.1f | | | | 50 |\n", events.Milliseconds(more)))
}

// train runs a job of four workers during an action, verifies its result, and returns the durations
// of its steps.
func (c *control) train(ctx context.Context, meanwhile func() error) ([]time.Duration, error) {
	if err := c.Ready(ctx); err != nil {
		return nil, err
	}
	limit, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	r, err := c.Train(limit, network.Training{
		Name: "control", Workers: spec.Workers{Min: 4, Max: 4}, Samples: 6000, Batch: 64, CommitEvery: 5, StepTime: 10 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	if _, err := r.Trains(limit, 0, 4); err != nil {
		return nil, err
	}
	from := time.Now()
	if err := meanwhile(); err != nil {
		return nil, err
	}
	to := time.Now()
	if err := r.Finish(); err != nil {
		return nil, err
	}
	h, a, err := r.Ends(limit)
	if err != nil {
		return nil, err
	}
	if a.Generations != 1 || a.Void != 0 {
		return nil, fmt.Errorf("the job needed %d generations and made %d steps in vain: killing the control plane must not touch its members", a.Generations, a.Void)
	}
	return lengths(h, from, to), nil
}

// lengths returns the durations of the steps within a period.
func lengths(h *record.History, from, to time.Time) []time.Duration {
	var out []time.Duration
	steps := h.Steps()
	for i := 1; i < len(steps); i++ {
		if !steps[i-1].Before(from) && !steps[i].After(to) {
			out = append(out, steps[i].Sub(steps[i-1]))
		}
	}
	return out
}

// storm kills n processes: all replicas in turn, and sometimes a broker, every other time the
// leader of the fact stream.
func (c *control) storm(ctx context.Context, n int) error {
	replicas := c.Replicas()
	for range n {
		name := replicas[c.killed%len(replicas)]
		if c.killed%brokerEvery == brokerEvery-1 {
			if err := pass(ctx, betweenBroker-time.Since(c.lastBroker)); err != nil {
				return err
			}
			name = c.broker(ctx)
		}
		for !c.Processes.Running(name) {
			if err := pass(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
		if err := c.Processes.Kill(name); err != nil {
			return err
		}
		c.killed++
		if err := pass(ctx, betweenKills); err != nil {
			return err
		}
	}
	return nil
}

func (c *control) broker(ctx context.Context) string {
	c.lastBroker = time.Now()
	c.brokers++
	if c.brokers%2 == 1 {
		if leader, err := c.Leader(ctx, events.StreamFacts); err == nil && leader != "" {
			c.leaders++
			return leader
		}
	}
	return c.Brokers[c.brokers%len(c.Brokers)]
}

func pass(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
