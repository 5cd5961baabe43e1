// Package scale measures the control plane with many agents. Brokers (three) and services (two
// replicas of each) are processes of bin/regroup. Agents are simulated: light clients that share a
// few connections, each with its own subscriptions. Such an agent sends hellos, heartbeats at the
// real interval with its launch revisions, answers pings, receives its launches and the notices,
// and joins for all its slots in one request, as the real one does under restart recovery. It
// starts no processes and publishes no facts about workers.
package scale

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/report"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/wait"
)

// size is the result for a number of agents.
type size struct {
	agents int
	form   []time.Duration // from the placement decision until every agent has its ranks
	notice []time.Duration // from an agent's notice until every other agent has it
	lost   []time.Duration // from discovery's decision that a node is lost until every other agent knows that the generation is over
	regain []time.Duration // from that decision until every other agent has its ranks in the next generation
	cpu    map[string]time.Duration
	idle   map[string]float64 // percent of a core
	last   map[string]cluster.Usage
}

// measure starts a new cluster for each number of agents, so that nothing of the last one is left.
func measure(ctx context.Context, r *report.Report, agents, trials int) (_ *size, err error) {
	c, err := cluster.Start(ctx, cluster.Options{
		Bin: r.Bin, Name: "scale", Brokers: 3, Replicas: 2, Log: os.Stderr,
		// Real agents have machines of their own: heartbeats must not wait for what is measured.
		Place: func(string) cluster.Place { return cluster.Place{Run: []string{"nice", "-n", "5"}} },
	})
	if err != nil {
		return nil, err
	}
	p := &plane{c}
	defer func() {
		if err != nil {
			r.Say("%s", c.Processes.Logs(2000))
		}
		err = errors.Join(err, c.Close())
	}()
	began := time.Now()
	fleet, err := gather(ctx, p.URL, agents)
	if err != nil {
		return nil, fmt.Errorf("gather %d agents: %w", agents, err)
	}
	defer fleet.close()
	s := &size{agents: agents, cpu: map[string]time.Duration{}, idle: map[string]float64{}}
	r.Say("%d agents are here after %s", agents, time.Since(began).Round(time.Second))
	limit, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := cluster.Until(limit, func() (bool, error) { return fleet.settled(), nil }); err != nil {
		return nil, fmt.Errorf("the agents do not settle on one heartbeat interval: %w", err)
	}
	wait.Sleep(ctx, 5*time.Second) // the wave of hellos
	before, err := p.used()
	if err != nil {
		return nil, err
	}
	const watched = 5 * time.Second
	wait.Sleep(ctx, watched)
	after, err := p.used()
	for k := range after {
		s.idle[k] = 100 * float64(after[k].CPU-before[k].CPU) / float64(watched)
	}
	for i := range trials {
		if err = errors.Join(err, s.trial(ctx, p, fleet, i == trials-1)); err != nil {
			return nil, fmt.Errorf("trial %d of %d agents: %w", i, agents, err)
		}
	}
	return s, nil
}

// trial places a job on all agents, and has ten of them send a failure notice. With last it also
// loses a node.
func (s *size) trial(ctx context.Context, p *plane, c *fleet, last bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	before, err := p.used()
	if err != nil {
		return err
	}
	// The time of every fact is that of its decision, by this machine's clock.
	facts := make(chan events.Event, 64)
	reading, stop := context.WithCancel(ctx)
	stands := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- p.Client.Watch(reading, broker.FromNew, []string{
			events.FamilySubject(events.FamilyPlacement, "*"), events.FamilySubject(events.FamilyJob, "*"), events.FamilySubject(events.FamilyNode, "*"),
			events.FamilySubject(events.FamilyRound, "*"),
		}, func() error { close(stands); return nil }, func(a cluster.Arrival) error {
			select {
			case facts <- a.Event:
			case <-reading.Done():
			}
			return nil
		})
	}()
	defer func() { stop(); <-ended }()
	select {
	case <-stands:
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	n := len(c.agents) * slots
	spec := spec.Job{
		Name: "scale", Command: []string{"train"}, Workers: spec.Workers{Min: n - slots, Max: n}, Recovery: spec.RecoveryRestart,
		Stop: spec.Stop{Grace: spec.Duration(time.Second)},
	}
	job, err := p.Client.Submit(ctx, spec)
	if err != nil {
		return err
	}
	watch := c.expect(job, 0)
	placed, err := first(ctx, facts, func(b events.PlacementSet) bool { return b.Job == job })
	if err != nil {
		return err
	}
	at, err := watch.wait(ctx, "have no ranks")
	if err != nil {
		return err
	}
	s.form = append(s.form, at.Sub(placed))
	after, err := p.used()
	if err != nil {
		return err
	}
	for k, v := range after {
		s.cpu[k] += v.CPU - before[k].CPU
	}
	if err := s.sendNotices(ctx, c, job); err != nil {
		return err
	}
	if last {
		if err := s.lose(ctx, c, job, facts); err != nil {
			return err
		}
		if s.last, err = p.used(); err != nil {
			return err
		}
	}
	if err := p.Client.Stop(ctx, job); err != nil {
		return err
	}
	_, err = first(ctx, facts, func(b events.PlacementReleased) bool { return b.Job == job })
	wait.Sleep(ctx, time.Second)
	return errors.Join(err, ctx.Err())
}

// sendNotices lets agents report the death of a worker, one after the other.
func (s *size) sendNotices(ctx context.Context, c *fleet, job ident.JobID) error {
	for i := range 10 {
		from := c.agents[i*len(c.agents)/10]
		// For a generation that does not exist, so that it is received and ends nothing.
		data, err := bodies.Encode(events.NoticeEnvelope{Notice: &events.Notice{Rank: -1, Exited: events.WorkerExited{
			WorkerRef: tables.WorkerRef{Job: job, Place: ident.Place{Node: from.node, Slot: slots}, Agent: from.incarnation, Incarnation: "none"},
			ExitCode:  -1, Signal: "SIGKILL", Detail: "killed by signal 9 (SIGKILL)",
		}}})
		if err != nil {
			return err
		}
		w := c.expect(job, 0)
		began := time.Now()
		if err := from.ports.Signals.Send(events.NoticeSubject(job), data); err != nil {
			return err
		}
		at, err := w.wait(ctx, "have not received the notice")
		if err != nil {
			return err
		}
		s.notice = append(s.notice, at.Sub(began))
		wait.Sleep(ctx, 100*time.Millisecond)
	}
	return nil
}

// lose silences a node.
func (s *size) lose(ctx context.Context, c *fleet, job ident.JobID, facts chan events.Event) error {
	dead := c.agents[len(c.agents)/2]
	w := c.expect(job, 1)
	dead.mute.Store(true)
	lost, err := first(ctx, facts, func(b events.NodeLost) bool { return b.Node == dead.node })
	if err != nil {
		return err
	}
	at, err := w.wait(ctx, "have not learned of the lost node")
	if err != nil {
		return err
	}
	s.lost = append(s.lost, at.Sub(lost))
	at, err = c.expect(job, 1).wait(ctx, "have no ranks after the loss")
	s.regain = append(s.regain, at.Sub(lost))
	return err
}

// first returns the time of the first fact of a kind that ok accepts.
func first[B events.Body](ctx context.Context, facts <-chan events.Event, ok func(B) bool) (time.Time, error) {
	for {
		select {
		case e := <-facts:
			if b, is := e.Body.(B); is && ok(b) {
				return e.Time, nil
			}
			if b, is := e.Body.(events.JobRejected); is {
				return e.Time, fmt.Errorf("rejected: %v", b.Errors)
			}
		case <-ctx.Done():
			var none B
			return time.Time{}, fmt.Errorf("no fact %s: %w", none.Type(), context.Cause(ctx))
		}
	}
}

// plane is the control plane under measurement.
type plane struct{ *cluster.Cluster }

// used is what the processes take so far, by kind.
func (p *plane) used() (map[string]cluster.Usage, error) {
	all := map[string]cluster.Usage{}
	names := map[string][]string{"nats": p.Brokers}
	for _, name := range p.Services() {
		service, _, _ := strings.Cut(name, "-")
		names[service] = append(names[service], name)
	}
	for kind := range names {
		var err error
		if all[kind], err = cluster.Used(p.PIDs(names[kind]...)...); err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
	}
	return all, nil
}

// Suite measures each number of agents.
func Suite(f *flag.FlagSet) func(context.Context, *report.Report) error {
	sizes := f.String("agents", "64,512,5000", "numbers of agents, of 8 slots each")
	trials := f.Int("trials", 7, "jobs for each number of agents")
	title := f.String("title", "Many agents", "of the section")
	return func(ctx context.Context, r *report.Report) error {
		t, costs := &report.Table{}, &strings.Builder{}
		kinds := append([]string{"nats"}, events.ServiceNames()...)
		for text := range strings.SplitSeq(*sizes, ",") {
			n, err := strconv.Atoi(text)
			if err != nil {
				return err
			}
			s, err := measure(ctx, r, n, *trials)
			if err != nil { // results so far are still written
				fmt.Fprintf(costs, "\nNot measured: %d agents: %s.\n", n, strings.ReplaceAll(err.Error(), "\n", ", "))
				return errors.Join(err, r.Section(*title, document(t, kinds, costs.String())))
			}
			s.rows(t)
			s.costs(costs, kinds)
		}
		return r.Section(*title, document(t, kinds, costs.String()))
	}
}

func document(t *report.Table, kinds []string, costs string) string {
	return fmt.Sprintf(`Three brokers and two replicas of each service are processes of their own, the agents are
simulated (%d slots each, heartbeats every %s, from a thousand agents on every second, above 2,500 every two); all of them share this machine.
The agents would have machines of their own: here the control plane runs at a lower priority (nice 5), so that heartbeats do not wait for what is measured.

%s
What an agent costs, all replicas together: processor time from the submit to the ranks, share of a core for heartbeats alone, resident memory of one replica.

| agents | form, ms per agent | processor, ms per agent | idle, %% of a core per 1000 agents | %s, MiB |
|---|---|---|---|%s
%s`, slots, heartbeat, t, strings.Join(kinds, ", MiB | "), strings.Repeat("---|", len(kinds)), costs)
}

func (s *size) rows(t *report.Table) {
	goal := map[int]string{512: "median 500 ms", 5000: "3000 ms"}[s.agents]
	if goal == "" {
		goal = "none"
	}
	what := fmt.Sprintf("%d agents, %d ranks: ", s.agents, s.agents*slots)
	t.Times(what+"from the placement to every agent holding its ranks, ms", s.form, goal)
	t.Times(what+"from one agent's notice of a failure to every agent having it, ms", s.notice, "median 100 ms")
	t.Times(what+"from the verdict that a node is lost to every other agent having heard that the generation is over, ms", s.lost, "none")
	t.Times(what+"from that verdict to every other agent holding its ranks in the next generation, ms", s.regain, "none")
}

// costs adds the row of what the control plane takes.
func (s *size) costs(b *strings.Builder, kinds []string) {
	var cpu time.Duration
	idle := 0.0
	for _, k := range kinds {
		cpu += s.cpu[k]
		idle += s.idle[k]
	}
	n := float64(s.agents)
	fmt.Fprintf(b, "| %d | %.2f | %.2f | %.1f |", s.agents, report.MS(report.Quantile(s.form, 0.5))/n, report.MS(cpu)/n/float64(len(s.form)), 1000*idle/n)
	for _, k := range kinds {
		replicas := 2.0
		if k == "nats" {
			replicas = 3
		}
		fmt.Fprintf(b, " %.0f |", s.last[k].Now/replicas)
	}
	b.WriteString("\n")
}
