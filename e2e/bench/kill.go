package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
)

// measureKill kills a worker of a job of four, again and again, and measures until every survivor has made a step in the next
// generation. Then it waits until the successor is in, so that each kill meets four workers.
func measureKill(ctx context.Context, c *single, kills int) (string, error) {
	var job events.JobID
	var sealed events.RoundSealed
	var killed time.Time
	var waiting map[events.Incarnation]bool // survivors whose first step is awaited
	var ready map[events.Incarnation]bool   // members of sealed that have made a step
	var survivors, rejoined []time.Duration
	var full time.Time
	limit, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	err := watch(limit, c.Client, func() error {
		id, err := c.submit(ctx, "kill", events.Workers{Min: 2, Max: 4}, "-steps", "100000000", "-step-time", "1ms", "-samples", "1000000", "-batch", "64", "-commit-every", "5")
		job = id
		return err
	}, func(a cluster.Arrival) error {
		switch b := a.Event.Body.(type) {
		case events.JobFailed:
			return fmt.Errorf("%s failed: %s", b.Job, b.Reason)
		case events.RoundSealed:
			if b.Job == job {
				sealed, ready = b, map[events.Incarnation]bool{}
			}
		case events.WorkerReady:
			if b.Job != job || b.Generation != sealed.Generation {
				return nil
			}
			ready[b.Incarnation] = true
			if delete(waiting, b.Incarnation); waiting != nil && len(waiting) == 0 {
				survivors = append(survivors, a.At.Sub(killed))
				waiting, full = nil, killed
			}
			if len(sealed.Members) < 4 || len(ready) < 4 {
				return nil
			}
			if !full.IsZero() {
				rejoined = append(rejoined, a.At.Sub(full))
			}
			if len(survivors) == kills {
				return cluster.Enough
			}
			victim := sealed.Members[len(survivors)%4] // every rank in turn, rank 0 too
			waiting = map[events.Incarnation]bool{}
			for _, m := range sealed.Members {
				if m.Incarnation != victim.Incarnation {
					waiting[m.Incarnation] = true
				}
			}
			killed = time.Now()
			return syscall.Kill(victim.PID, syscall.SIGKILL)
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("after %d kills: %w", len(survivors), err)
	}
	if err := c.Stop(ctx, job); err != nil {
		return "", err
	}
	return row("worker SIGKILL to every survivor's first step of the new generation (embedded, 4 Go workers)", survivors, "median 100 ms, p99 300 ms") +
		row("worker SIGKILL to its successor's first step (4 workers again)", rejoined, "none"), nil
}

// measureSubmit submits jobs one after the other and measures until rank 0 has made its first step.
func measureSubmit(ctx context.Context, c *single, submits int) (string, error) {
	var took []time.Duration
	for i := range submits {
		var job events.JobID
		var asked time.Time
		limit, cancel := context.WithTimeout(ctx, time.Minute)
		var first time.Duration
		err := watch(limit, c.Client, func() error {
			asked = time.Now()
			id, err := c.submit(ctx, fmt.Sprintf("submit-%d", i), events.Workers{Min: 4, Max: 4}, "-steps", "20", "-step-time", "1ms", "-samples", "1280", "-batch", "64")
			job = id
			return err
		}, func(a cluster.Arrival) error {
			switch b := a.Event.Body.(type) {
			case events.WorkerReady:
				if b.Job == job && b.Rank == 0 && first == 0 {
					first = a.At.Sub(asked)
				}
			case events.JobFailed:
				return fmt.Errorf("%s failed: %s", b.Job, b.Reason)
			case events.JobSucceeded:
				if b.Job == job {
					return cluster.Enough
				}
			}
			return nil
		})
		cancel()
		if err != nil {
			return "", fmt.Errorf("submit %d: %w", i, err)
		}
		took = append(took, first)
	}
	return row("submit to first step of 4 Go workers (embedded, processes started)", took, "median 500 ms"), nil
}
