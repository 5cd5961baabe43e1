package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/regroup-io/regroup/e2e/network"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// laboratory runs fn in a data centre of hosts with separate network stacks, and removes it.
func laboratory(ctx context.Context, o network.Options, fn func(*network.Datacenter) error) (err error) {
	if o.Bin, err = filepath.Abs(o.Bin); err != nil {
		return err
	}
	if o.Dir, err = os.MkdirTemp("", "regroup-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	c, err := network.Build(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return fn(c)
}

// hosts measures what needs a network and three brokers: four nodes with a worker each.
func hosts(ctx context.Context, out, bin string, cuts, kills int) error {
	return laboratory(ctx, network.Options{Bin: bin, Nodes: 4, Slots: 1, Name: "bench", Restart: time.Second}, func(c *network.Datacenter) error {
		absolute, err := filepath.Abs(bin)
		if err != nil {
			return err
		}
		job := func(name string) func(context.Context) (events.JobID, error) {
			return func(ctx context.Context) (events.JobID, error) {
				return submit(ctx, c.Client, absolute, name, spec.Workers{Min: 2, Max: 4}, counting...)
			}
		}
		fmt.Fprintln(os.Stderr, "bench: kill, three brokers")
		killed, _, err := breaking{client: c.Client, trials: kills, strike: killWorker, submit: job("kill")}.measure(ctx)
		if err != nil {
			return fmt.Errorf("kill, three brokers: %w", err)
		}
		fmt.Fprintln(os.Stderr, "bench: cut")
		cut, _, err := breaking{client: c.Client, trials: cuts, submit: job("cut"), strike: func(n int, _ events.RoundSealed) (func(events.Member) bool, func() error, error) {
			node := c.Nodes[n%len(c.Nodes)]
			broken := network.Isolate(node)
			heal := func() error { return c.Heal(broken...) }
			return func(m events.Member) bool { return string(m.Place.Node) == node }, heal, c.Break(broken...)
		}}.measure(ctx)
		if err != nil {
			return fmt.Errorf("cut: %w", err)
		}
		return write(out, "Three brokers, hosts of their own", "Hosts are network namespaces of this machine; everything is stored three times. A cut loses every packet from and to a node, silently.\n\n"+table()+
			row("worker SIGKILL to every survivor's first step of the new generation (4 nodes)", killed, "median 120 ms")+
			row("silent cut of a node to every survivor's first step of the new generation", cut, "p99 3000 ms"))
	})
}
