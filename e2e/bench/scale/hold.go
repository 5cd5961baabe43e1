package scale

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/report"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/jetstream"
)

// Hold lets simulated agents work on one job of a cluster that is there already.
func Hold(f *flag.FlagSet) func(context.Context, *report.Report) error {
	agents := f.Int("agents", 1, "how many")
	server := f.String("server", "", "the brokers")
	return func(ctx context.Context, _ *report.Report) error { return hold(ctx, *server, *agents, os.Stdin) }
}

// hold lets agents join a cluster and work on one job until ctx ends or commands do: its id is
// printed when all have their ranks. A line "lose" takes one agent away. The workers report in each
// generation that they have started, and the first one its steps.
func hold(ctx context.Context, server string, agents int, commands io.Reader) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	fleet, err := gather(ctx, server, agents)
	if err != nil {
		return fmt.Errorf("gather %d agents: %w", agents, err)
	}
	defer fleet.close()
	client, err := cluster.Connect(ctx, jetstream.ConnectOptions{URL: server, Name: "hold"}, os.Stderr)
	if err != nil {
		return err
	}
	defer client.Close()
	n := agents * slots
	job, err := client.Submit(ctx, spec.Job{
		Name: "hold", Command: []string{"train"}, Workers: spec.Workers{Min: n - slots, Max: n}, Recovery: spec.RecoveryRestart, Stop: spec.Stop{Grace: spec.Duration(time.Second)},
	})
	if err != nil {
		return err
	}
	if _, err := fleet.expect(job, 0).wait(ctx, "have no ranks"); err != nil {
		return err
	}
	if err := fleet.started(ctx, job); err != nil {
		return err
	}
	fmt.Println(job)
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(commands); in.Scan(); {
			lines <- in.Text()
		}
	}()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var watching <-chan time.Time
	heard := false
	for step, lost := uint64(1), 0; ; {
		select {
		case line, open := <-lines:
			if !open {
				return nil
			}
			if line != "lose" || lost == agents-1 {
				continue
			}
			lost++
			watching = fleet.expect(job, lost).done
			fleet.agents[agents-lost].mute.Store(true)
		case <-watching:
			if again := fleet.expect(job, lost); !heard { // that the generation is over; the ranks come next
				watching, heard = again.done, true
				continue
			}
			watching, heard = nil, false
			if err := fleet.started(ctx, job); err != nil {
				return err
			}
		case <-tick.C:
			step++
			fleet.agents[0].report(job, step)
		case <-ctx.Done():
			return nil
		}
	}
}

// started publishes for each worker that its process runs and that its first step is done.
func (c *fleet) started(ctx context.Context, job ident.JobID) error {
	rank := 0
	for _, a := range c.agents {
		if a.mute.Load() {
			continue
		}
		a.mu.Lock()
		joins, generation := a.last[job], a.gen[job]
		a.mu.Unlock()
		for _, j := range joins.Joins {
			ref := tables.WorkerRef{Job: job, Place: j.Place, Incarnation: j.Incarnation, Agent: a.incarnation, Attempt: j.Attempt, Generation: generation, PID: 1000 + rank}
			for _, b := range []events.Body{events.WorkerStarted{WorkerRef: ref, StartMS: 1}, events.WorkerReady{WorkerRef: ref, Rank: ident.Rank(rank), Step: 1}} {
				m, err := cloudevent.Encode(events.Event{ID: ulid.Make().String(), Source: "/regroup/agent/" + string(a.node), Entity: string(job), Time: time.Now(), Body: b})
				if err == nil {
					_, err = a.ports.Log.Publish(ctx, m)
				}
				if err != nil {
					return err
				}
			}
			rank++
		}
	}
	return nil
}

// report sends the progress of the agent's first worker.
func (a *agent) report(job ident.JobID, step uint64) {
	a.mu.Lock()
	generation := a.gen[job]
	a.mu.Unlock()
	data, err := bodies.Encode(events.Progress{
		Job: job, Place: ident.Place{Node: a.node}, Generation: generation, World: len(a.fleet.agents) * slots, Step: step,
		Metrics: map[string]float64{"loss": 1 / float64(step)},
	})
	if err == nil {
		_ = a.ports.Signals.Send(events.ProgressSubject(job), data)
	}
}
