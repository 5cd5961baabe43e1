package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// publish submits n jobs of a command, from several clients at once.
func (p *plane) publish(ctx context.Context, name string, n int, command ...string) error {
	var wg sync.WaitGroup
	all := make([]error, clients)
	for c := range clients {
		wg.Go(func() {
			client, err := cluster.Connect(ctx, p.url, fmt.Sprintf("%s-%d", name, c), nil)
			if err != nil {
				all[c] = err
				return
			}
			defer client.Close()
			for i := c; i < n && err == nil; i += clients {
				_, err = client.Publish(ctx, spec.Job{Name: name, Command: command, Workers: spec.Workers{Min: 1, Max: 1}, Stop: spec.Stop{Grace: spec.Duration(time.Second)}})
			}
			all[c] = err
		})
	}
	wg.Wait()
	return errors.Join(all...)
}

// all publishes empty jobs all at once, waits until each has ended, once, and returns how long each
// took from the first publish on.
func (p *plane) all(ctx context.Context, n int, within time.Duration) ([]time.Duration, error) {
	limit, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var began time.Time
	published := make(chan error, 1)
	ended := map[events.JobID]bool{}
	var took []time.Duration
	err := p.client.Watch(limit, events.FromNew, []string{events.FamilySubject(events.FamilyJob, "*")}, func() error {
		began = time.Now()
		go func() { published <- p.publish(limit, "crowd", n, "/bin/true") }()
		return nil
	}, func(a cluster.Arrival) error {
		switch b := a.Event.Body.(type) {
		case events.JobSucceeded:
			if ended[b.Job] {
				return fmt.Errorf("%s has ended twice", b.Job)
			}
			ended[b.Job] = true
			took = append(took, a.At.Sub(began))
		case events.JobFailed:
			return fmt.Errorf("%s failed: %s", b.Job, b.Reason)
		case events.JobRejected:
			return fmt.Errorf("%s was rejected: %v", b.Job, b.Errors)
		}
		if len(ended) == n {
			return cluster.Enough
		}
		return nil
	})
	if err := errors.Join(err, <-published); err != nil {
		return nil, fmt.Errorf("%d of %d jobs have ended: %w", len(ended), n, err)
	}
	fmt.Fprintf(os.Stderr, "queue: %d brokers: %d jobs have ended after %v\n", p.brokers, n, time.Since(began))
	return took, nil
}

// burst measures a crowd of jobs.
func (p *plane) burst(ctx context.Context, n int) (string, error) {
	took, err := p.all(ctx, n, 5*time.Minute)
	if err != nil {
		return "", err
	}
	return row(fmt.Sprintf("%d jobs published at once on %d slots: from the first publish to the end of each, ms", n, slots), p.brokers, took, "max 30000 ms"), nil
}

// finish runs many jobs to their ends, each once, and reports the memory of the control plane.
func (p *plane) finish(ctx context.Context, n int) (string, error) {
	took, err := p.all(ctx, n, 30*time.Minute)
	if err != nil {
		return "", err
	}
	sum := 0.0
	for _, name := range p.control() {
		_, most, err := p.memory(name)
		if err != nil {
			return "", err
		}
		sum += most
	}
	text := fmt.Sprintf("| %d jobs published at once, each run and ended once on %d slots, s | %d | 1 | | %.0f | | | none |\n", n, slots, p.brokers, took[len(took)-1].Seconds())
	text += fmt.Sprintf("| %d jobs run: resident memory of brokers, services and gateway together, the most of each, MiB | %d | 1 | | %.0f | | | 1024 MiB |\n", n, p.brokers, sum)
	fmt.Fprint(os.Stderr, text)
	return text, nil
}

// queue submits jobs behind running ones, ends some of these one after the other, and measures the
// time until the next is placed.
func (p *plane) queue(ctx context.Context, n, trials int) (string, error) {
	limit, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	began := time.Now()
	if err := p.publish(limit, "queue", n+slots, "/bin/sleep", "100000"); err != nil {
		return "", err
	}
	published := time.Since(began)
	if err := p.queued(limit, n); err != nil {
		return "", err
	}
	accepted := time.Since(began)
	fmt.Fprintf(os.Stderr, "queue: %d brokers: %d jobs are queued after %v (published after %v)\n", p.brokers, n, accepted, published)
	if err := pass(limit, 25*time.Second); err != nil { // two reconciliations
		return "", err
	}
	var took []time.Duration
	for range trials {
		d, err := p.next(limit)
		if err != nil {
			return "", fmt.Errorf("after %d trials: %w", len(took), err)
		}
		took = append(took, d)
		if err := pass(limit, 100*time.Millisecond); err != nil {
			return "", err
		}
	}
	text := row(fmt.Sprintf("%d jobs queued: from the end of a job to the placement of the next, ms", n), p.brokers, took, "median 50 ms")
	text += fmt.Sprintf("| %d jobs published and queued, s | %d | 1 | | %.1f | | | none |\n", n, p.brokers, accepted.Seconds())
	for _, s := range events.ServiceNames() {
		now, most, err := p.memory(s)
		if err != nil {
			return "", err
		}
		goal := "none"
		if s == events.ServiceRegistry || s == events.ServiceScheduler {
			goal = "300 MiB"
		}
		text += fmt.Sprintf("| %d jobs queued: resident memory of the %s, MiB (most ever in the last column) | %d | 1 | | %.0f | | %.0f | %s |\n", n, s, p.brokers, now, most, goal)
	}
	fmt.Fprint(os.Stderr, text)
	return text, nil
}

// queued waits until the scheduler has n jobs in its queue and the slots are assigned.
func (p *plane) queued(ctx context.Context, n int) error {
	have := 0
	err := cluster.Until(ctx, func() (bool, error) {
		v, err := cluster.View[events.PoolView](ctx, p.client, events.BucketPlacements, events.PoolKey)
		have = len(v.Queue)
		if err == nil && have < n {
			err = pass(ctx, 500*time.Millisecond)
		}
		return err == nil && have == n, err
	})
	if err != nil {
		return fmt.Errorf("%d of %d jobs are queued: %w", have, n, err)
	}
	return nil
}

// next stops a running job and measures the time from the fact of its end to that of the next
// placement.
func (p *plane) next(ctx context.Context) (time.Duration, error) {
	pool, err := cluster.View[events.PoolView](ctx, p.client, events.BucketPlacements, events.PoolKey)
	if err != nil {
		return 0, err
	}
	var victim events.JobID
	for id, row := range pool.Jobs {
		if len(row.Places) > 0 && (victim == "" || id < victim) {
			victim = id
		}
	}
	limit, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var ended, placed time.Time
	err = p.client.Watch(limit, events.FromNew, []string{events.FamilySubject(events.FamilyJob, "*"), events.FamilySubject(events.FamilyPlacement, "*")}, func() error {
		return p.client.Stop(limit, victim)
	}, func(a cluster.Arrival) error {
		switch b := a.Event.Body.(type) {
		case events.JobStopped:
			if b.Job == victim {
				ended = a.At
			}
		case events.PlacementSet:
			if len(b.Places) > 0 && b.Spec.Name == "queue" {
				placed = a.At
			}
		}
		if !ended.IsZero() && !placed.IsZero() {
			return cluster.Enough
		}
		return nil
	})
	return placed.Sub(ended), err
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
