package main

import (
	"context"
	"fmt"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// measureJoins makes a node repeatedly join and leave a job of two workers, with different kinds of
// state.
func measureJoins(ctx context.Context, bin string, joins int) (string, error) {
	const goal = "one step + 100 ms"
	var report string
	for _, state := range []struct {
		what string
		args []string
	}{
		{"small state", nil},
		{"64 MiB of state, all of it changed by every step", []string{"-moving", fmt.Sprint(64 << 20)}},
		{"64 MiB of state, 62 MiB of it frozen", []string{"-frozen", fmt.Sprint(62 << 20), "-moving", fmt.Sprint(2 << 20)}},
	} {
		pauses, err := measureJoin(ctx, bin, joins, state.args)
		if err != nil {
			return "", fmt.Errorf("%s: %w", state.what, err)
		}
		report += row("a node joining: pause of training, first step of 10 ms included ("+state.what+")", pauses, goal)
	}
	return report, nil
}

// measureJoin returns, for each join, the longest time that one of the two members did not train:
// from the end of its last step of the old generation to the end of its first step of the new one,
// on its own clock.
func measureJoin(ctx context.Context, bin string, joins int, state []string) ([]time.Duration, error) {
	c, err := start(ctx, bin, 2)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	var pauses []time.Duration
	var sealed events.RoundSealed
	var ready map[events.Incarnation]events.WorkerReady
	limit, cancel := context.WithTimeout(ctx, time.Duration(joins)*10*time.Second+time.Minute)
	defer cancel()
	err = watch(limit, c.Client, func() error {
		args := append([]string{"-steps", "100000000", "-step-time", "10ms", "-samples", "1000000", "-batch", "64", "-commit-every", "10", "-quiet"}, state...)
		_, err := c.submit(ctx, "join", spec.Workers{Min: 2, Max: 3}, args...)
		return err
	}, func(a cluster.Arrival) error {
		switch b := a.Event.Body.(type) {
		case events.JobFailed:
			return fmt.Errorf("%s failed: %s", b.Job, b.Reason)
		case events.RoundSealed:
			sealed, ready = b, map[events.Incarnation]events.WorkerReady{}
		case events.WorkerReady:
			if b.Generation != sealed.Generation {
				return nil
			}
			ready[b.Incarnation] = b
			if len(ready) < len(sealed.Members) {
				return nil
			}
			if len(sealed.Members) == 2 {
				return c.join(ctx, "node-b", 1)
			}
			pause := 0.0
			for _, r := range ready {
				if r.Survivor {
					pause = max(pause, r.AbortMS+r.RejoinMS+r.SyncMS+r.StepMS)
				}
			}
			pauses = append(pauses, time.Duration(pause*float64(time.Millisecond)))
			if len(pauses) == joins {
				return cluster.Enough
			}
			return c.leave("node-b")
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("after %d joins: %w", len(pauses), err)
	}
	return pauses, nil
}
