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

// breaking is one kind of repeated fault in a job of four workers.
type breaking struct {
	client *cluster.Client
	submit func(context.Context) (events.JobID, error)
	trials int
	// strike injects the n-th fault, and reports which workers it ends. heal (may be nil) repairs
	// it once the survivors train.
	strike func(n int, sealed events.RoundSealed) (gone func(events.Member) bool, heal func() error, err error)
}

// measure returns the times from just before each fault until every survivor has made a step in the
// next generation, and, for faults without heal, until there are four workers again. Each fault
// hits four workers.
func (m breaking) measure(ctx context.Context) (survivors, whole []time.Duration, err error) {
	var job events.JobID
	var sealed events.RoundSealed
	var struck, full time.Time
	var waiting map[events.Incarnation]bool // survivors without a first step
	var ready map[events.Incarnation]bool   // members of sealed that have made a step
	var heal func() error
	limit, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	err = watch(limit, m.client, func() error {
		id, err := m.submit(ctx)
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
				survivors = append(survivors, a.At.Sub(struck))
				waiting, full = nil, struck
				if heal != nil {
					if err := heal(); err != nil {
						return err
					}
				}
			}
			if len(sealed.Members) < 4 || len(ready) < 4 {
				return nil
			}
			if !full.IsZero() && heal == nil {
				whole = append(whole, a.At.Sub(full))
			}
			if len(survivors) == m.trials {
				return cluster.Enough
			}
			struck = time.Now()
			var gone func(events.Member) bool
			var err error
			if gone, heal, err = m.strike(len(survivors), sealed); err != nil {
				return err
			}
			waiting = map[events.Incarnation]bool{}
			for _, w := range sealed.Members {
				if !gone(w) {
					waiting[w.Incarnation] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("after %d trials: %w", len(survivors), err)
	}
	return survivors, whole, m.client.Stop(ctx, job)
}

// counting is the workers' command during the faults.
var counting = []string{"-steps", "100000000", "-step-time", "1ms", "-samples", "1000000", "-batch", "64", "-commit-every", "5"}

// killWorker kills every rank in turn, rank 0 too.
func killWorker(n int, sealed events.RoundSealed) (func(events.Member) bool, func() error, error) {
	victim := sealed.Members[n%len(sealed.Members)]
	return func(m events.Member) bool { return m.Incarnation == victim.Incarnation }, nil, syscall.Kill(victim.PID, syscall.SIGKILL)
}

func measureKill(ctx context.Context, c *single, kills int) (string, error) {
	survivors, rejoined, err := breaking{client: c.Client, trials: kills, strike: killWorker, submit: func(ctx context.Context) (events.JobID, error) {
		return c.submit(ctx, "kill", spec.Workers{Min: 2, Max: 4}, counting...)
	}}.measure(ctx)
	if err != nil {
		return "", err
	}
	return row("worker SIGKILL to every survivor's first step of the new generation (embedded, 4 Go workers)", survivors, "median 60 ms") +
		row("worker SIGKILL to its successor's first step (4 workers again)", rejoined, "none"), nil
}

// measureSubmit submits jobs one after the other and measures until rank 0 has made its first step.
func measureSubmit(ctx context.Context, c *single, submits int) (string, error) {
	took, err := submitted(ctx, c, submits)
	if err != nil {
		return "", err
	}
	return row("submit to first step of 4 Go workers (embedded, processes started)", took, "median 500 ms"), nil
}

// submitted returns how long each of some jobs has taken until its first step.
func submitted(ctx context.Context, c *single, submits int) ([]time.Duration, error) {
	var took []time.Duration
	for i := range submits {
		var job events.JobID
		var asked time.Time
		limit, cancel := context.WithTimeout(ctx, time.Minute)
		var first time.Duration
		err := watch(limit, c.Client, func() error {
			asked = time.Now()
			id, err := c.submit(ctx, fmt.Sprintf("submit-%d", i), spec.Workers{Min: 4, Max: 4}, "-steps", "20", "-step-time", "1ms", "-samples", "1280", "-batch", "64")
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
			return nil, fmt.Errorf("submit %d: %w", i, err)
		}
		took = append(took, first)
	}
	return took, nil
}
