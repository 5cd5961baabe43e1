package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// size is the result for a number of agents.
type size struct {
	agents int
	form   []time.Duration // from the placement decision until every agent has its ranks
	notice []time.Duration // from an agent's notice until every other agent has it
	lost   []time.Duration // from discovery's decision that a node is lost until every other agent knows that the generation is over
	regain []time.Duration // from that decision until every other agent has its ranks in the next generation
	cpu    map[string]time.Duration
	idle   map[string]float64 // fraction of a core
	memory map[string]int     // KiB
}

func measure(ctx context.Context, p *plane, agents, trials int) (*size, error) {
	began := time.Now()
	fleet, err := gather(ctx, p.url, agents)
	if err != nil {
		return nil, fmt.Errorf("gather %d agents: %w", agents, err)
	}
	defer fleet.close()
	s := &size{agents: agents, cpu: map[string]time.Duration{}}
	progress("%d agents are here after %s", agents, time.Since(began).Round(time.Second))
	limit, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := cluster.Until(limit, func() (bool, error) { return fleet.settled(), nil }); err != nil {
		return nil, fmt.Errorf("the agents do not settle on one heartbeat interval: %w", err)
	}
	if err := sleep(ctx, 5*time.Second); err != nil { // the wave of hellos
		return nil, err
	}
	if s.idle, err = p.idle(ctx, 5*time.Second); err != nil {
		return nil, err
	}
	progress("their heartbeats cost %s", shares(s.idle))
	for i := range trials {
		if err := s.trial(ctx, p, fleet, i == trials-1); err != nil {
			return nil, fmt.Errorf("trial %d of %d agents: %w", i, agents, err)
		}
	}
	return s, nil
}

// trial places a job on all agents, sends them a failure notice, and with last loses a node.
func (s *size) trial(ctx context.Context, p *plane, c *fleet, last bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	before, err := p.cpu()
	if err != nil {
		return err
	}
	// The time of every fact is that of its decision, by this machine's clock.
	facts := make(chan events.Event, 64)
	reading, stop := context.WithCancel(ctx)
	stands := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- p.client.Watch(reading, events.FromNew, []string{
			events.FamilySubject(events.FamilyPlacement, "*"), events.FamilySubject(events.FamilyJob, "*"), events.FamilySubject(events.FamilyNode, "*"),
			events.FamilySubject(events.FamilyRound, "*"),
		}, func() error { close(stands); return nil }, func(a cluster.Arrival) error {
			if verbose {
				fmt.Fprintf(os.Stderr, "  %s %s\n", a.Event.Time.Format("05.000"), a.Event.Body.Type())
			}
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
	job, err := p.client.Submit(ctx, spec)
	if err != nil {
		return err
	}
	watch := c.expect(job, 0)
	var placed time.Time
	for placed.IsZero() {
		e, err := next(ctx, facts)
		if err != nil {
			return fmt.Errorf("no placement: %w", err)
		}
		switch b := e.Body.(type) {
		case events.PlacementSet:
			if b.Job == job {
				placed = e.Time
			}
		case events.JobRejected:
			return fmt.Errorf("rejected: %v", b.Errors)
		}
	}
	at, err := next(ctx, watch.done)
	if err != nil {
		return fmt.Errorf("%d agents have no ranks: %w", watch.missed.Load(), err)
	}
	s.form = append(s.form, at.Sub(placed))
	progress("ranks after %s", at.Sub(placed).Round(time.Millisecond))
	after, err := p.cpu()
	if err != nil {
		return err
	}
	for k, v := range after {
		s.cpu[k] += v - before[k]
	}
	if err := s.sendNotices(ctx, c, job); err != nil {
		return err
	}
	if last {
		if err := s.lose(ctx, c, job, facts); err != nil {
			return err
		}
		if s.memory, err = p.memory(); err != nil {
			return err
		}
	}
	if err := p.client.Stop(ctx, job); err != nil {
		return err
	}
	for {
		e, err := next(ctx, facts)
		if err != nil {
			return fmt.Errorf("the job does not end: %w", err)
		}
		if b, ok := e.Body.(events.PlacementReleased); ok && b.Job == job {
			return sleep(ctx, time.Second)
		}
	}
}

// sendNotices lets agents report the death of a worker, one after the other.
func (s *size) sendNotices(ctx context.Context, c *fleet, job events.JobID) error {
	for i := range 10 {
		from := c.agents[i*len(c.agents)/10]
		// For a generation that does not exist, so that it is received and ends nothing.
		data, err := events.EncodeBody(events.NoticeEnvelope{Notice: &events.Notice{Rank: -1, Exited: events.WorkerExited{
			WorkerRef: events.WorkerRef{Job: job, Place: events.Place{Node: from.node, Slot: slots}, Agent: from.incarnation, Incarnation: "none"},
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
		at, err := next(ctx, w.done)
		if err != nil {
			return fmt.Errorf("%d agents have not received the notice: %w", w.missed.Load(), err)
		}
		s.notice = append(s.notice, at.Sub(began))
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// lose silences a node.
func (s *size) lose(ctx context.Context, c *fleet, job events.JobID, facts chan events.Event) error {
	dead := c.agents[len(c.agents)/2]
	w := c.expect(job, 1)
	dead.mute.Store(true)
	var lost time.Time
	for lost.IsZero() {
		e, err := next(ctx, facts)
		if err != nil {
			return fmt.Errorf("the node is not lost: %w", err)
		}
		if b, ok := e.Body.(events.NodeLost); ok && b.Node == dead.node {
			lost = e.Time
		}
	}
	at, err := next(ctx, w.done)
	if err != nil {
		return fmt.Errorf("%d agents have not learned of the lost node: %w", w.missed.Load(), err)
	}
	s.lost = append(s.lost, at.Sub(lost))
	w = c.expect(job, 1)
	if at, err = next(ctx, w.done); err != nil {
		return fmt.Errorf("%d agents have no ranks after the loss: %w", w.missed.Load(), err)
	}
	s.regain = append(s.regain, at.Sub(lost))
	return nil
}

// progress prints the progress of the measurement.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "scale: "+format+"\n", args...) }

func shares(of map[string]float64) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%s %.0f%%", k, of[k]))
	}
	return strings.Join(all, ", ")
}

func next[T any](ctx context.Context, c <-chan T) (T, error) {
	select {
	case v := <-c:
		return v, nil
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// cpu is the CPU time of the processes so far, by kind.
func (p *plane) cpu() (map[string]time.Duration, error) {
	return each(p, func(pid int) (time.Duration, error) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		user, err := strconv.Atoi(f[11])
		if err != nil {
			return 0, err
		}
		system, err := strconv.Atoi(f[12])
		return time.Duration(user+system) * 10 * time.Millisecond, err
	})
}

// memory is the resident size of the processes in KiB, by kind: the mean of its replicas.
func (p *plane) memory() (map[string]int, error) {
	all, err := each(p, func(pid int) (int, error) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				return strconv.Atoi(strings.Fields(rest)[0])
			}
		}
		return 0, fmt.Errorf("process %d has no VmRSS", pid)
	})
	for kind, names := range p.names() {
		all[kind] /= len(names)
	}
	return all, err
}

func each[V int | time.Duration](p *plane, of func(pid int) (V, error)) (map[string]V, error) {
	out := map[string]V{}
	for kind, names := range p.names() {
		for _, name := range names {
			pid, _ := p.processes.PID(name)
			v, err := of(pid)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			out[kind] += v
		}
	}
	return out, nil
}

// idle is the fraction of a core that each kind uses while there are only heartbeats.
func (p *plane) idle(ctx context.Context, d time.Duration) (map[string]float64, error) {
	before, err := p.cpu()
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, d); err != nil {
		return nil, err
	}
	after, err := p.cpu()
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for k := range after {
		out[k] = 100 * float64(after[k]-before[k]) / float64(d)
	}
	return out, nil
}
