package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/regroup-io/regroup/client"
	processes "github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
)

// cluster is a control plane with a gateway.
type cluster struct {
	processes processes.Processes
	at        client.Record
	client    *client.Client
}

// inCluster measures with a new one.
func inCluster(ctx context.Context, bin string, measure func(*cluster) error) error {
	dir, err := os.MkdirTemp("", "regroup-http-")
	if err != nil {
		return err
	}
	c := &cluster{processes: processes.Processes{Dir: dir}}
	defer func() {
		c.processes.Stop(30 * time.Second)
		_ = os.RemoveAll(dir)
	}()
	if err := c.start(ctx, filepath.Join(bin, "regroup")); err != nil {
		return err
	}
	return measure(c)
}

func (c *cluster) start(ctx context.Context, regroup string) error {
	address, err := processes.FreeAddress()
	if err != nil {
		return err
	}
	state := func(name string) string { return filepath.Join(c.processes.Dir, name) }
	all := [][]string{{"nats", "serve", "nats", "--listen", address}}
	for _, s := range events.ServiceNames() {
		all = append(all, []string{s, "serve", s, "--server", "nats://" + address})
	}
	all = append(all, []string{"gateway", "serve", "gateway", "--listen", "127.0.0.1:0", "--server", "nats://" + address})
	for _, a := range all {
		args := append([]string{regroup}, append(a[1:], "--state-dir", state(a[0]), "--log-level", "warn")...)
		if err := c.processes.Start(processes.Command{Name: a[0], Args: args}); err != nil {
			return err
		}
	}
	limit, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return processes.Until(limit, func() (bool, error) {
		if c.at, err = client.Find(state("gateway")); err != nil {
			return false, nil //nolint:nilerr // it starts
		}
		if c.client, err = client.New(client.Options{URL: c.at.URL, Token: c.at.Token, Patience: -1}); err != nil {
			return false, err
		}
		var s struct {
			Ready    string `json:"ready"`
			Services []struct {
				Answers bool `json:"answers"`
			} `json:"services"`
		}
		if err := c.client.Get(limit, "/api/v1/system", &s); err != nil || s.Ready != "ok" {
			return false, nil //nolint:nilerr // the gateway is not ready
		}
		for _, x := range s.Services {
			if !x.Answers {
				return false, nil
			}
		}
		return true, nil
	})
}

// memory is the resident size of the gateway, in MiB.
func (c *cluster) memory() (float64, error) {
	pid, _ := c.processes.PID("gateway")
	now, _, err := processes.Memory(pid)
	return now, err
}
