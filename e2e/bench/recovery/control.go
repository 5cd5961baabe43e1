package recovery

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/network"
	"github.com/regroup-io/regroup/e2e/record"
	"github.com/regroup-io/regroup/e2e/report"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/wait"
)

const (
	betweenKills  = 250 * time.Millisecond
	brokerEvery   = 20              // one kill in brokerEvery hits a broker
	betweenBroker = 5 * time.Second // the last one must be back, and a leader elected
)

// control is an experiment: does killing the control plane affect training?
type control struct {
	*network.Datacenter
	killed, brokers, leaders int
	lastBroker               time.Time
}

// Control kills services and brokers with SIGKILL while a job with fixed members trains, alternates
// that with runs without kills, and compares the durations of steps.
func Control(f *flag.FlagSet) func(context.Context, *report.Report) error {
	kills := f.Int("kills", 1000, "processes of the control plane to kill")
	runs := f.Int("runs", 20, "runs over which they are spread, each followed by an undisturbed one")
	return func(ctx context.Context, r *report.Report) error {
		b := &bench{Report: r}
		return b.datacenter(ctx, cluster.Options{Nodes: 2, Slots: 2, Restart: 100 * time.Millisecond}, func(d *network.Datacenter) error {
			c := &control{Datacenter: d}
			var calm, stormy []time.Duration
			for run := range *runs {
				part := *kills*(run+1) / *runs - *kills*run / *runs
				began := time.Now()
				disturbed, err := c.train(ctx, func() error { return c.storm(ctx, part) })
				if err != nil {
					return fmt.Errorf("run %d, after %d kills: %w", run, c.killed, err)
				}
				as := time.Since(began)
				undisturbed, err := c.train(ctx, func() error { wait.Sleep(ctx, as); return nil })
				if err != nil {
					return fmt.Errorf("undisturbed run %d: %w", run, err)
				}
				calm, stormy = append(calm, undisturbed...), append(stormy, disturbed...)
				r.Say("%d of %d control processes killed; p99 of a step %v, undisturbed %v", c.killed, *kills,
					report.Quantile(stormy, 0.99).Round(time.Millisecond), report.Quantile(calm, 0.99).Round(time.Millisecond))
			}
			t := &report.Table{}
			t.Times("step of 10 ms, undisturbed", calm, "none")
			t.Times("step of 10 ms, control processes killed", stormy, "none")
			t.Figure("p99 above undisturbed", report.MS(report.Quantile(stormy, 0.99)-report.Quantile(calm, 0.99)), "50")
			return r.Section("Kills of the control plane", fmt.Sprintf(
				"%d kills with SIGKILL, %d of them of brokers (%d of the one that led the facts), one every %v or later, in %d runs of a job whose members do not change; started again after 100 ms. "+
					"As many runs without kills, in turn. Every job succeeded in one generation, with no sample missing or repeated.\n\n%s",
				c.killed, c.brokers, c.leaders, betweenKills, *runs, t))
		})
	}
}

// train runs a job of four workers during an action, verifies its result, and returns the durations
// of its steps.
func (c *control) train(ctx context.Context, meanwhile func() error) ([]time.Duration, error) {
	limit, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := c.Ready(limit); err != nil {
		return nil, err
	}
	r, err := c.Train(limit, cluster.Training{Name: "control", Workers: spec.Workers{Min: 4, Max: 4}, Batch: 64, CommitEvery: 5})
	if err == nil {
		_, err = r.Trains(limit, 0, 4)
	}
	if err != nil {
		return nil, err
	}
	from := time.Now()
	err = meanwhile()
	to := time.Now()
	if err = errors.Join(err, r.Finish()); err != nil {
		return nil, err
	}
	h, a, err := r.Ends(limit)
	if err == nil && (a.Generations != 1 || a.Void != 0) {
		err = fmt.Errorf("the job needed %d generations and made %d steps in vain: killing the control plane must not touch its members", a.Generations, a.Void)
	}
	if err != nil {
		return nil, err
	}
	return record.Durations(h.Steps(), from, to), nil
}

// storm kills n processes, the replicas in turn. One of 20 kills hits a broker, every other time
// the leader of the fact stream.
func (c *control) storm(ctx context.Context, n int) error {
	replicas := c.Services()
	for range n {
		name := replicas[c.killed%len(replicas)]
		if c.killed%brokerEvery == brokerEvery-1 {
			wait.Sleep(ctx, betweenBroker-time.Since(c.lastBroker))
			name = c.broker(ctx)
		}
		if err := cluster.Until(ctx, func() (bool, error) { return c.Processes.Running(name), nil }); err != nil {
			return err
		}
		if err := c.Processes.Kill(name); err != nil {
			return err
		}
		c.killed++
		wait.Sleep(ctx, betweenKills)
	}
	return ctx.Err()
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
