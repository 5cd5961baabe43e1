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

// price is what one run of a cluster has measured.
type price struct {
	recover, submit []time.Duration
	idle            []time.Duration // processor time of all processes in a second
}

// rounds is how often a cluster of each kind is started, in turn.
const rounds = 5

// measurePrice measures a cluster whose processes, each of its own, have identities and TLS, beside
// one without.
func measurePrice(ctx context.Context, bin string, kills, submits int, idle time.Duration) (string, error) {
	var without, with price
	for r := range rounds {
		order := []bool{false, true}
		if r%2 == 1 {
			slices.Reverse(order)
		}
		for _, guarded := range order {
			into := &without
			if guarded {
				into = &with
			}
			if err := into.measure(ctx, bin, guarded, kills/rounds, submits/rounds, idle); err != nil {
				return "", fmt.Errorf("identities and TLS: %v: %w", guarded, err)
			}
			fmt.Fprintf(os.Stderr, "bench: round %d, guarded %v\n", r+1, guarded)
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, `Written by `+"`make bench-guarded`"+`. Measured on %s. The broker, each service and an agent with four slots are processes of their own on
this machine; %d clusters of each kind in turn. Medians.

| what | trials | without | with identities and TLS | ratio | goal |
|---|---|---|---|---|---|
`, report.Machine(), rounds)
	for _, row := range []struct {
		what       string
		left, side []time.Duration
	}{
		{"worker SIGKILL to every survivor's first step of the new generation, ms", without.recover, with.recover},
		{"submit to first step of 4 Go workers, ms", without.submit, with.submit},
		{"idle: processor time of all processes, ms in a second", without.idle, with.idle},
	} {
		ms := func(d []time.Duration) float64 { return float64(report.Quantile(d, 0.5)) / float64(time.Millisecond) }
		fmt.Fprintf(&text, "| %s | %d | %.1f | %.1f | %.2f | 1.10 |\n", row.what, len(row.side), ms(row.left), ms(row.side), ms(row.side)/ms(row.left))
	}
	return text.String(), nil
}

// measure adds what a new cluster shows.
func (p *price) measure(ctx context.Context, bin string, guarded bool, kills, submits int, idle time.Duration) error {
	c, err := startParts(ctx, bin, guarded)
	if err != nil {
		return err
	}
	defer c.stop()
	took, err := submitted(ctx, c, submits)
	if err != nil {
		return err
	}
	p.submit = append(p.submit, took...)
	survivors, _, err := breaking{client: c.Client, trials: kills, strike: killWorker, submit: func(ctx context.Context) (events.JobID, error) {
		return c.submit(ctx, "kill", spec.Workers{Min: 2, Max: 4}, counting...)
	}}.measure(ctx)
	if err != nil {
		return err
	}
	p.recover = append(p.recover, survivors...)
	if err := pass(ctx, 5*time.Second); err != nil { // the end of the last job
		return err
	}
	before, err := c.cpu()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := pass(ctx, idle); err != nil {
		return err
	}
	after, err := c.cpu()
	p.idle = append(p.idle, time.Duration(float64(after-before)/time.Since(began).Seconds()))
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
