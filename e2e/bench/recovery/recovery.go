// Package recovery measures how soon jobs train again after faults, with bin/regroup and
// bin/counter. Times are seen by a client: from just before a SIGKILL, or the submit, to the
// arrival of the fact that the step was made.
package recovery

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/network"
	"github.com/regroup-io/regroup/e2e/report"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/wait"
)

// bench is how often what is measured.
type bench struct {
	*report.Report
	kills, submits, losses, joins, cuts int
	idle                                time.Duration
}

func (b *bench) flags(f *flag.FlagSet, kills, submits int, idle time.Duration) {
	f.IntVar(&b.kills, "kills", kills, "workers to kill")
	f.IntVar(&b.submits, "submits", submits, "jobs to submit")
	f.DurationVar(&b.idle, "idle", idle, "how long idle processes are watched")
}

// Suite measures one process of everything, and three brokers on hosts of their own.
func Suite(f *flag.FlagSet) func(context.Context, *report.Report) error {
	b := &bench{}
	b.flags(f, 200, 30, 30*time.Second)
	f.IntVar(&b.losses, "losses", 60, "agents to kill with their workers")
	f.IntVar(&b.joins, "joins", 50, "nodes to join, for each size of state")
	f.IntVar(&b.cuts, "cuts", 50, "nodes to cut off")
	only := f.String("only", "", "one of idle, submit, kill, lose, join, network; empty = all")
	return func(ctx context.Context, r *report.Report) error {
		b.Report = r
		if *only != "network" {
			if err := b.together(ctx, *only); err != nil {
				return err
			}
		}
		if *only != "" && *only != "network" {
			return nil
		}
		return b.hosts(ctx)
	}
}

// together measures one process.
func (b *bench) together(ctx context.Context, only string) error {
	t := &report.Table{}
	for _, part := range []struct {
		name    string
		slots   int
		measure func(context.Context, *cluster.Cluster, *report.Table) error
	}{
		{"idle", 4, b.watched},
		{"submit", 4, b.submitted},
		{"kill", 4, b.killed},
		{"lose", 2, b.lost},
		{"join", 2, b.joined("small state")},
		{"join", 2, b.joined("64 MiB of state, all of it changed by every step", "-moving", fmt.Sprint(64<<20))},
		{"join", 2, b.joined("64 MiB of state, 62 MiB of it frozen", "-frozen", fmt.Sprint(62<<20), "-moving", fmt.Sprint(2<<20))},
	} {
		if only != "" && only != part.name {
			continue
		}
		b.Say("%s", part.name)
		c, err := cluster.Start(ctx, cluster.Options{Bin: b.Bin, Name: "bench", Together: true, Slots: part.slots})
		if err == nil {
			err = errors.Join(part.measure(ctx, c, t), c.Close())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return b.Section("One process", t.String())
}

// watched measures memory and processor time of the idle process.
func (b *bench) watched(ctx context.Context, c *cluster.Cluster, t *report.Table) error {
	wait.Sleep(ctx, 5*time.Second) // until it is idle
	used, share, err := idle(ctx, b.idle, c.PIDs("up"))
	t.Figure("idle all-in-one process: resident MiB", used.Now, "80")
	t.Figure(fmt.Sprintf("idle all-in-one process: %% of a core over %s", b.idle), 100*share, "3")
	return err
}

// idle returns the memory of processes after a time in which nothing happens, and the share of a
// core that they used.
func idle(ctx context.Context, d time.Duration, pids []int) (cluster.Usage, float64, error) {
	before, err := cluster.Used(pids...)
	began := time.Now()
	wait.Sleep(ctx, d)
	took := time.Since(began)
	after, again := cluster.Used(pids...)
	return after, float64(after.CPU-before.CPU) / float64(took), errors.Join(err, again, ctx.Err())
}

func (b *bench) submitted(ctx context.Context, c *cluster.Cluster, t *report.Table) error {
	took, err := submits(ctx, c, b.submits)
	t.Times("submit to first step of 4 Go workers (embedded, processes started)", took, "median 500 ms")
	return err
}

func (b *bench) killed(ctx context.Context, c *cluster.Cluster, t *report.Table) error {
	survivors, whole, err := breaks(ctx, c, b.kills, killWorker)
	t.Times("worker SIGKILL to every survivor's first step of the new generation (embedded, 4 Go workers)", survivors, "median 60 ms")
	t.Times("worker SIGKILL to its successor's first step (4 workers again)", whole, "none")
	return err
}

// lost kills an agent with its two workers again and again. A new node replaces each lost one,
// because a node that fails often is quarantined.
func (b *bench) lost(ctx context.Context, c *cluster.Cluster, t *report.Table) error {
	node := func(n int) string { return fmt.Sprintf("node-%d", n+2) }
	if err := c.Agent(node(0), 2); err != nil {
		return err
	}
	survivors, _, err := breaks(ctx, c, b.losses, func(n int, _ events.RoundSealed) (func(tables.Member) bool, func() error, error) {
		return on(node(n)), func() error { return c.Agent(node(n+1), 2) }, c.Processes.Signal(node(n), syscall.SIGKILL) // its workers die with it
	})
	t.Times("agent SIGKILL with its workers to survivors' first step (embedded, 2 of 4 Go workers survive)", survivors, "median 100 ms, p99 1000 ms")
	return err
}

func on(node string) func(tables.Member) bool {
	return func(m tables.Member) bool { return string(m.Place.Node) == node }
}

// joined makes a node repeatedly join and leave a job of two workers. A pause is the longest time
// that one of the two members did not train: from the end of its last step of the old generation to
// the end of its first step of the new one, on its own clock.
func (b *bench) joined(what string, state ...string) func(context.Context, *cluster.Cluster, *report.Table) error {
	return func(ctx context.Context, c *cluster.Cluster, t *report.Table) error {
		var pauses []time.Duration
		var sealed events.RoundSealed
		var ready map[ident.Incarnation]events.WorkerReady
		limit, cancel := context.WithTimeout(ctx, time.Duration(b.joins)*10*time.Second+time.Minute)
		defer cancel()
		err := watch(limit, c, func() error {
			_, err := submit(ctx, c, "join", spec.Workers{Min: 2, Max: 3}, append(endless("10ms", "10"), state...)...)
			return err
		}, func(a cluster.Arrival) error {
			switch body := a.Event.Body.(type) {
			case events.RoundSealed:
				sealed, ready = body, map[ident.Incarnation]events.WorkerReady{}
			case events.WorkerReady:
				if body.Generation != sealed.Generation {
					return nil
				}
				if ready[body.Incarnation] = body; len(ready) < len(sealed.Members) {
					return nil
				}
				if len(sealed.Members) == 2 {
					gone := func() (bool, error) { return !c.Processes.Running("node-2"), errors.New("node-2 does not leave") }
					return errors.Join(cluster.Until(limit, gone), c.Agent("node-2", 1))
				}
				pause := 0.0
				for _, r := range ready {
					if r.Survivor {
						pause = max(pause, r.AbortMS+r.RejoinMS+r.SyncMS+r.StepMS)
					}
				}
				if pauses = append(pauses, time.Duration(pause*float64(time.Millisecond))); len(pauses) == b.joins {
					return cluster.Enough
				}
				return c.Processes.Signal("node-2", syscall.SIGTERM) // its worker leaves at its next commit
			}
			return nil
		})
		t.Times("a node joining: pause of training, first step of 10 ms included ("+what+")", pauses, "one step + 100 ms")
		return err
	}
}

// datacenter runs fn in a data centre of hosts with separate network stacks, and removes it.
func (b *bench) datacenter(ctx context.Context, o cluster.Options, fn func(*network.Datacenter) error) (err error) {
	o.Bin, o.Name = b.Bin, "bench"
	if o.Dir, err = os.MkdirTemp("", "regroup-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	c, err := network.Build(ctx, network.Options{Options: o})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return fn(c)
}

// hosts measures what needs a network and three brokers: four nodes with a worker each.
func (b *bench) hosts(ctx context.Context) error {
	return b.datacenter(ctx, cluster.Options{Nodes: 4, Slots: 1, Restart: time.Second}, func(c *network.Datacenter) error {
		b.Say("kill, three brokers")
		killed, _, err := breaks(ctx, c.Cluster, b.kills, killWorker)
		if err != nil {
			return fmt.Errorf("kill, three brokers: %w", err)
		}
		b.Say("cut")
		cut, _, err := breaks(ctx, c.Cluster, b.cuts, func(n int, _ events.RoundSealed) (func(tables.Member) bool, func() error, error) {
			node := c.Nodes[n%len(c.Nodes)]
			broken := network.Isolate(node)
			return on(node), func() error { return c.Heal(broken...) }, c.Break(broken...)
		})
		if err != nil {
			return fmt.Errorf("cut: %w", err)
		}
		t := &report.Table{}
		t.Times("worker SIGKILL to every survivor's first step of the new generation (4 nodes)", killed, "median 120 ms")
		t.Times("silent cut of a node to every survivor's first step of the new generation", cut, "p99 3000 ms")
		return b.Section("Three brokers, hosts of their own",
			"Hosts are network namespaces of this machine; everything is stored three times. A cut loses every packet from and to a node, silently.\n\n"+t.String())
	})
}

// submit submits a job of the counter example.
func submit(ctx context.Context, c *cluster.Cluster, name string, workers spec.Workers, args ...string) (ident.JobID, error) {
	return c.Client.Submit(ctx, spec.Job{
		Name: name, Command: append([]string{filepath.Join(c.Options.Bin, "counter")}, args...), Workers: workers,
		Recovery: spec.RecoveryInProcess, Failures: spec.Failures{Max: &cluster.Unlimited},
	})
}

// endless are the arguments of a job that does not end.
func endless(step, commit string) []string {
	return []string{"-steps", "100000000", "-step-time", step, "-samples", "1000000", "-batch", "64", "-commit-every", commit, "-quiet"}
}

// watch calls fn with every new fact of workers, rounds and jobs until fn returns cluster.Enough; a
// job that fails is an error. ready is called once the subscription is active.
func watch(ctx context.Context, c *cluster.Cluster, ready func() error, fn func(cluster.Arrival) error) error {
	return c.Client.Watch(ctx, broker.FromNew, []string{
		events.FamilySubject(events.FamilyWorker, "*"), events.FamilySubject(events.FamilyRound, "*"), events.FamilySubject(events.FamilyJob, "*"),
	}, ready, func(a cluster.Arrival) error {
		if b, failed := a.Event.Body.(events.JobFailed); failed {
			return fmt.Errorf("%s failed: %s", b.Job, b.Reason)
		}
		return fn(a)
	})
}

// submits returns how long each of some jobs takes from its submit until rank 0 has made its first
// step.
func submits(ctx context.Context, c *cluster.Cluster, n int) (took []time.Duration, err error) {
	for i := range n {
		var job ident.JobID
		var asked time.Time
		limit, cancel := context.WithTimeout(ctx, time.Minute)
		err := watch(limit, c, func() (err error) {
			asked = time.Now()
			job, err = submit(ctx, c, fmt.Sprintf("submit-%d", i), spec.Workers{Min: 4, Max: 4}, "-steps", "20", "-step-time", "1ms", "-samples", "1280", "-batch", "64")
			return err
		}, func(a cluster.Arrival) error {
			switch b := a.Event.Body.(type) {
			case events.WorkerReady:
				if b.Job == job && b.Rank == 0 && len(took) == i {
					took = append(took, a.At.Sub(asked))
				}
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
	}
	return took, nil
}

// breaks breaks a job of four workers again and again. strike causes the n-th fault, and reports
// which workers it ends; heal (may be nil) repairs it once the survivors train. The times are from
// just before each fault until every survivor has made a step in the next generation, and, for
// faults without heal, until there are four workers again. Each fault hits four workers.
func breaks(ctx context.Context, c *cluster.Cluster, trials int,
	strike func(n int, sealed events.RoundSealed) (gone func(tables.Member) bool, heal func() error, err error),
) (survivors, whole []time.Duration, err error) {
	var job ident.JobID
	var sealed events.RoundSealed
	var struck, full time.Time
	var waiting, ready map[ident.Incarnation]bool // survivors without a first step, and members of sealed with one
	var gone func(tables.Member) bool
	var heal func() error
	limit, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	err = watch(limit, c, func() (err error) {
		job, err = submit(ctx, c, "break", spec.Workers{Min: 2, Max: 4}, endless("1ms", "5")...)
		return err
	}, func(a cluster.Arrival) (err error) {
		switch b := a.Event.Body.(type) {
		case events.RoundSealed:
			if b.Job == job {
				sealed, ready = b, map[ident.Incarnation]bool{}
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
			if len(survivors) == trials {
				return cluster.Enough
			}
			struck = time.Now()
			gone, heal, err = strike(len(survivors), sealed)
			waiting = map[ident.Incarnation]bool{}
			for _, m := range slices.DeleteFunc(slices.Clone(sealed.Members), gone) {
				waiting[m.Incarnation] = true
			}
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("after %d trials: %w", len(survivors), err)
	}
	return survivors, whole, c.Client.Stop(ctx, job)
}

// killWorker kills every rank in turn, rank 0 too.
func killWorker(n int, sealed events.RoundSealed) (func(tables.Member) bool, func() error, error) {
	victim := sealed.Members[n%len(sealed.Members)]
	return func(m tables.Member) bool { return m.Incarnation == victim.Incarnation }, nil, syscall.Kill(victim.PID, syscall.SIGKILL)
}
