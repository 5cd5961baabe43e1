package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// measureLosses repeatedly kills an agent together with its two workers, and measures until both
// workers of the other node have made a step in the next generation. A new node replaces each lost
// one, because a node that fails often is quarantined.
func measureLosses(ctx context.Context, bin string, losses int) (string, error) {
	const slots = 2
	c, err := start(ctx, bin, slots)
	if err != nil {
		return "", err
	}
	defer c.stop()
	node := func(i int) string { return fmt.Sprintf("node-%d", i) }
	var sealed events.RoundSealed
	var ready map[events.Incarnation]bool // members of sealed that have made a step
	var killed time.Time
	var took []time.Duration
	limit, cancel := context.WithTimeout(ctx, time.Duration(losses)*10*time.Second+time.Minute)
	defer cancel()
	err = watch(limit, c.Client, func() error {
		_, err := c.submit(ctx, "lose", spec.Workers{Min: slots, Max: 2 * slots}, "-steps", "100000000", "-step-time", "1ms", "-samples", "1000000", "-batch", "64", "-commit-every", "5", "-quiet")
		return err
	}, func(a cluster.Arrival) error {
		switch b := a.Event.Body.(type) {
		case events.JobFailed:
			return fmt.Errorf("%s failed: %s", b.Job, b.Reason)
		case events.RoundSealed:
			sealed, ready = b, map[events.Incarnation]bool{}
		case events.WorkerReady:
			if b.Generation != sealed.Generation {
				return nil
			}
			ready[b.Incarnation] = true
			switch {
			case len(ready) < len(sealed.Members):
			case len(sealed.Members) == 2*slots && killed.IsZero():
				killed = time.Now()
				return c.processes.Signal(node(len(took)), syscall.SIGKILL) // its workers die with it
			case len(sealed.Members) == slots:
				if !killed.IsZero() {
					took = append(took, a.At.Sub(killed))
					killed = time.Time{}
				}
				if len(took) == losses {
					return cluster.Enough
				}
				return c.join(ctx, node(len(took)), slots)
			}
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("after %d losses: %w", len(took), err)
	}
	return row("agent SIGKILL with its workers to survivors' first step (embedded, 2 of 4 Go workers survive)", took, "median 100 ms, p99 1000 ms"), nil
}
