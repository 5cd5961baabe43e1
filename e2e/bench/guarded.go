package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/report"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/jetstream"
)

// price is what the clusters of one kind have shown.
type price struct {
	recover, submit []time.Duration
	idle            []time.Duration // processor time of all processes in a second
}

const (
	rounds = 10 // how often a cluster of each kind is started
	turns  = 4  // how often they take turns in each round
)

// measurePrice measures clusters whose processes, each of its own, have identities and TLS, beside
// clusters without. What one cluster shows differs from the next more than the kinds do, and so
// does the machine from minute to minute: two clusters run at once, and take turns with few trials
// each.
func measurePrice(ctx context.Context, bin string, kills, submits int, idle time.Duration) (string, error) {
	var without, with price
	each := func(n int) int { return max(1, n/rounds/turns) }
	for r := range rounds {
		if err := side(ctx, bin, []*price{&without, &with}, r, each(kills), each(submits), idle); err != nil {
			return "", err
		}
		fmt.Fprintf(os.Stderr, "bench: round %d of %d\n", r+1, rounds)
	}
	var text strings.Builder
	fmt.Fprintf(&text, `Written by `+"`make bench SUITE=guarded`"+`. Measured on %s. The broker, each service and an agent with four slots are processes of their own on
this machine; %d times a cluster of each kind, both at once, which take turns. Medians of times, and the mean of processor time.

| what | trials | without | with identities and TLS | ratio | goal |
|---|---|---|---|---|---|
`, report.Machine(), rounds)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	for _, row := range []struct {
		what       string
		left, side []time.Duration
		of         func([]time.Duration) time.Duration
	}{
		{"worker SIGKILL to every survivor's first step of the new generation, ms", without.recover, with.recover, median},
		{"submit to first step of 4 Go workers, ms", without.submit, with.submit, median},
		{"idle: processor time of all processes, ms in a second", without.idle, with.idle, mean},
	} {
		left, side := ms(row.of(row.left)), ms(row.of(row.side))
		fmt.Fprintf(&text, "| %s | %d | %.1f | %.1f | %.2f | 1.10 |\n", row.what, len(row.side), left, side, side/left)
	}
	return text.String(), nil
}

func median(d []time.Duration) time.Duration { return report.Quantile(d, 0.5) }

func mean(d []time.Duration) (sum time.Duration) {
	for _, one := range d {
		sum += one
	}
	return sum / time.Duration(len(d))
}

// side adds what two new clusters show, one without and one with identities. They take turns, and
// another one begins in each round. Then both are idle.
func side(ctx context.Context, bin string, into []*price, round, kills, submits int, idle time.Duration) error {
	var all [2]*single
	for i := range all {
		c, err := startParts(ctx, bin, i == 1)
		if err != nil {
			return err
		}
		defer c.stop()
		all[i] = c
	}
	for turn := range turns {
		for i := range all {
			i = (i + round + turn) % len(all)
			if err := into[i].trials(ctx, all[i], kills, submits); err != nil {
				return fmt.Errorf("identities and TLS: %v: %w", i == 1, err)
			}
		}
	}
	if err := pass(ctx, 5*time.Second); err != nil { // the end of the last job
		return err
	}
	var before [2]time.Duration
	var began [2]time.Time
	for i, c := range all {
		var err error
		if before[i], err = c.cpu(); err != nil {
			return err
		}
		began[i] = time.Now()
	}
	if err := pass(ctx, idle); err != nil {
		return err
	}
	for i, c := range all {
		after, err := c.cpu()
		if err != nil {
			return err
		}
		into[i].idle = append(into[i].idle, time.Duration(float64(after-before[i])/time.Since(began[i]).Seconds()))
	}
	return nil
}

// trials adds the times of jobs that are submitted, and of workers that are killed.
func (p *price) trials(ctx context.Context, c *single, kills, submits int) error {
	took, err := submitted(ctx, c, submits)
	if err != nil {
		return err
	}
	p.submit = append(p.submit, took...)
	survivors, _, err := breaking{client: c.Client, trials: kills, strike: killWorker, submit: func(ctx context.Context) (events.JobID, error) {
		return c.submit(ctx, "kill", spec.Workers{Min: 2, Max: 4}, counting...)
	}}.measure(ctx)
	p.recover = append(p.recover, survivors...)
	return err
}

// cpu is the processor time of all processes so far.
func (s *single) cpu() (sum time.Duration, err error) {
	for _, name := range s.processes.Names() {
		pid, _ := s.processes.PID(name)
		one, err := cpuTime(pid)
		if err != nil {
			return 0, err
		}
		sum += one
	}
	return sum, nil
}

// startParts starts a broker, the services and an agent as processes of their own.
func startParts(ctx context.Context, bin string, guarded bool) (*single, error) {
	dir, err := os.MkdirTemp("", "regroup-bench-")
	if err != nil {
		return nil, err
	}
	s := &single{bin: bin, dir: dir, processes: cluster.Processes{Dir: dir}}
	if err := s.startParts(ctx, guarded); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *single) startParts(ctx context.Context, guarded bool) error {
	address, err := cluster.FreeAddress()
	if err != nil {
		return err
	}
	s.url = "nats://" + address
	regroup := filepath.Join(s.bin, "regroup")
	var more []string
	o := jetstream.ConnectOptions{URL: s.url, Name: "bench"}
	if guarded {
		auth := filepath.Join(s.dir, "auth")
		for _, args := range [][]string{{"init", "--host", "127.0.0.1"}, {"issue", "agent", "node-a"}, {"issue", "client", "bench"}} {
			if out, err := exec.CommandContext(ctx, regroup, append([]string{"auth", "--auth", auth}, args...)...).CombinedOutput(); err != nil {
				return fmt.Errorf("regroup auth %s: %w: %s", args[0], err, out)
			}
		}
		more = []string{"--auth", auth}
		o.Credentials, o.RootCA = filepath.Join(auth, "users", "bench.creds"), filepath.Join(auth, "tls", "ca.pem")
	}
	all := [][]string{{"nats", "serve", "nats", "--listen", address}}
	for _, name := range events.ServiceNames() {
		all = append(all, []string{name, "serve", name, "--server", s.url})
	}
	all = append(all, []string{"node-a", "agent", "--server", s.url, "--node", "node-a", "--slots", strconv.Itoa(4), "--advertise", "127.0.0.1"})
	for _, a := range all {
		args := slices.Concat([]string{regroup}, a[1:], []string{"--state-dir", filepath.Join(s.dir, "state-"+a[0]), "--log-level", "warn"}, more)
		if err := s.processes.Start(cluster.Command{Name: a[0], Args: args}); err != nil {
			return err
		}
	}
	within, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if s.Client, err = cluster.ConnectWith(within, o); err != nil {
		return err
	}
	return cluster.Until(within, func() (bool, error) {
		v, err := cluster.View[events.NodeView](within, s.Client, events.BucketNodes, "node-a")
		return err == nil && v.Schedulable(), err
	})
}
