// Package queue measures bursts of jobs. Several clients submit empty jobs all at once, which must
// all end; then ten thousand wait behind running jobs, and it measures the time from the end of one
// to the placement of the next, and the memory of the services. Then as many are run to their ends.
package queue

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/report"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/jetstream"
)

const (
	slots   = 8
	clients = 8
)

// plane is the control plane under measurement, with one agent.
type plane struct {
	*cluster.Cluster
	*report.Report
	table *report.Table
	with  string // how many brokers, for the rows
}

// Suite measures with one broker and with three, with a new control plane each time.
func Suite(f *flag.FlagSet) func(context.Context, *report.Report) error {
	burst := f.Int("crowd", 300, "jobs that are published at once")
	queue := f.Int("queue", 10000, "jobs that wait")
	trials := f.Int("trials", 50, "jobs that end before the queue")
	through := f.Int("through", 10000, "jobs that are run to their ends")
	return func(ctx context.Context, r *report.Report) error {
		t := &report.Table{}
		for _, part := range []func(*plane) error{
			func(p *plane) error { return p.burst(ctx, *burst) },
			func(p *plane) error { return p.queue(ctx, *queue, *trials) },
			func(p *plane) error { return p.finish(ctx, *through) },
		} {
			for _, brokers := range []int{1, 3} {
				c, err := cluster.Start(ctx, cluster.Options{Bin: r.Bin, Name: "queue", Brokers: brokers, Nodes: 1, Slots: slots, Gateway: true, Log: os.Stderr})
				if err != nil {
					return err
				}
				err = part(&plane{c, r, t, fmt.Sprintf("brokers: %d; ", brokers)})
				if err = errors.Join(err, c.Close()); err != nil {
					return fmt.Errorf("%d brokers: %w", brokers, err)
				}
			}
		}
		return r.Section("Many jobs", fmt.Sprintf("Brokers, one replica of each service, a gateway and one agent with %d slots are processes\n"+
			"of their own on this machine; eight clients publish. A job that does nothing is /bin/true with restart recovery.\n\n%s", slots, t))
	}
}

// publish submits n jobs of a command, from several clients at once.
func (p *plane) publish(ctx context.Context, name string, n int, command ...string) error {
	var wg sync.WaitGroup
	all := make([]error, clients)
	for c := range clients {
		wg.Go(func() {
			client, err := cluster.Connect(ctx, jetstream.ConnectOptions{URL: p.URL, Name: fmt.Sprintf("%s-%d", name, c)}, nil)
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
	ended := map[ident.JobID]bool{}
	var took []time.Duration
	err := p.Client.Watch(limit, broker.FromNew, []string{events.FamilySubject(events.FamilyJob, "*")}, func() error {
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
	p.Say("%s%d jobs have ended after %v", p.with, n, time.Since(began))
	return took, nil
}

// burst measures a crowd of jobs.
func (p *plane) burst(ctx context.Context, n int) error {
	took, err := p.all(ctx, n, 5*time.Minute)
	p.table.Times(fmt.Sprintf("%s%d jobs published at once on %d slots: from the first publish to the end of each, ms", p.with, n, slots), took, "max 30000 ms")
	return err
}

// finish runs many jobs to their ends, each once, and reports the memory of the control plane.
func (p *plane) finish(ctx context.Context, n int) error {
	took, err := p.all(ctx, n, 30*time.Minute)
	if err != nil {
		return err
	}
	used, err := cluster.Used(p.PIDs(append(append(p.Services(), p.Brokers...), "gateway")...)...)
	p.table.Figure(fmt.Sprintf("%s%d jobs published at once, each run and ended once on %d slots, s", p.with, n, slots), took[len(took)-1].Seconds(), "none")
	p.table.Figure(fmt.Sprintf("%s%d jobs run: resident memory of brokers, services and gateway together, the most of each, MiB", p.with, n), used.Most, "1024 MiB")
	return err
}

// queue submits jobs behind running ones, ends some of these one after the other, and measures the
// time until the next is placed.
func (p *plane) queue(ctx context.Context, n, trials int) error {
	limit, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	began := time.Now()
	if err := p.publish(limit, "queue", n+slots, "/bin/sleep", "100000"); err != nil {
		return err
	}
	if err := p.queued(limit, n); err != nil {
		return err
	}
	accepted := time.Since(began)
	p.Say("%s%d jobs are queued after %v", p.with, n, accepted)
	wait.Sleep(limit, 25*time.Second) // two reconciliations
	var took []time.Duration
	for range trials {
		d, err := p.next(limit)
		if err != nil {
			return fmt.Errorf("after %d trials: %w", len(took), err)
		}
		took = append(took, d)
		wait.Sleep(limit, 100*time.Millisecond)
	}
	p.table.Times(fmt.Sprintf("%s%d jobs queued: from the end of a job to the placement of the next, ms", p.with, n), took, "median 50 ms")
	p.table.Figure(fmt.Sprintf("%s%d jobs published and queued, s", p.with, n), accepted.Seconds(), "none")
	for _, s := range events.ServiceNames() {
		used, err := cluster.Used(p.PIDs(s + "-1")...)
		if err != nil {
			return err
		}
		goal := "none"
		if s == events.ServiceRegistry || s == events.ServiceScheduler {
			goal = "300 MiB"
		}
		p.table.Figure(fmt.Sprintf("%s%d jobs queued: resident memory of the %s, MiB", p.with, n, s), used.Now, goal)
		p.table.Figure(fmt.Sprintf("%s%d jobs queued: the most memory that the %s ever had, MiB", p.with, n, s), used.Most, "none")
	}
	return nil
}

// queued waits until the scheduler has n jobs in its queue and the slots are assigned.
func (p *plane) queued(ctx context.Context, n int) error {
	have := 0
	err := cluster.Until(ctx, func() (bool, error) {
		v, err := cluster.View[events.PoolView](ctx, p.Client, events.BucketPlacements, events.PoolKey)
		have = len(v.Queue)
		if err == nil && have < n {
			wait.Sleep(ctx, 500*time.Millisecond) // it is large
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
	pool, err := cluster.View[events.PoolView](ctx, p.Client, events.BucketPlacements, events.PoolKey)
	if err != nil {
		return 0, err
	}
	var victim ident.JobID
	for id, row := range pool.Jobs {
		if len(row.Places) > 0 && (victim == "" || id < victim) {
			victim = id
		}
	}
	limit, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var ended, placed time.Time
	err = p.Client.Watch(limit, broker.FromNew, []string{events.FamilySubject(events.FamilyJob, "*"), events.FamilySubject(events.FamilyPlacement, "*")}, func() error {
		return p.Client.Stop(limit, victim)
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
