package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
)

// plane is the control plane under measurement, with one agent.
type plane struct {
	processes cluster.Processes
	brokers   int
	url       string
	client    *cluster.Client
}

const clients = 8

func start(ctx context.Context, bin string, brokers int) (*plane, error) {
	dir, err := os.MkdirTemp("", "regroup-queue-")
	if err != nil {
		return nil, err
	}
	p := &plane{processes: cluster.Processes{Dir: dir}, brokers: brokers}
	if err := p.start(ctx, filepath.Join(bin, "regroup")); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *plane) start(ctx context.Context, regroup string) error {
	var listen, routes, urls []string
	for range p.brokers {
		for _, list := range []*[]string{&listen, &routes} {
			a, err := cluster.FreeAddress()
			if err != nil {
				return err
			}
			*list = append(*list, a)
		}
		urls = append(urls, "nats://"+listen[len(listen)-1])
	}
	p.url = strings.Join(urls, ",")
	for i := range p.brokers {
		name := fmt.Sprintf("nats-%d", i)
		args := []string{regroup, "serve", "nats", "--name", name, "--listen", listen[i], "--state-dir", filepath.Join(p.processes.Dir, name), "--log-level", "warn"}
		if p.brokers > 1 {
			args = append(args, "--cluster", "queue", "--cluster-listen", routes[i], "--routes", strings.Join(routes, ","))
		}
		if err := p.processes.Start(cluster.Command{Name: name, Args: args}); err != nil {
			return err
		}
	}
	limit, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(limit, regroup, "init", "--replicas", fmt.Sprint(p.brokers), "--server", p.url).CombinedOutput(); err != nil {
		return fmt.Errorf("regroup init: %w: %s", err, out)
	}
	var err error
	if p.client, err = cluster.Connect(ctx, p.url, "queue", os.Stderr); err != nil {
		return err
	}
	for _, s := range events.ServiceNames() {
		if err := p.processes.Start(cluster.Command{Name: s, Args: []string{
			regroup, "serve", s, "--server", p.url, "--state-dir", filepath.Join(p.processes.Dir, s), "--log-level", "warn",
		}}); err != nil {
			return err
		}
	}
	if err := p.processes.Start(cluster.Command{Name: "gateway", Args: []string{
		regroup, "serve", "gateway", "--listen", "127.0.0.1:0", "--server", p.url, "--state-dir", filepath.Join(p.processes.Dir, "gateway"), "--log-level", "warn",
	}}); err != nil {
		return err
	}
	if err := p.processes.Start(cluster.Command{Name: "agent", Args: []string{
		regroup, "agent", "--server", p.url, "--node", "node-a", "--slots", strconv.Itoa(slots), "--advertise", "127.0.0.1",
		"--state-dir", filepath.Join(p.processes.Dir, "agent"), "--log-level", "warn",
	}}); err != nil {
		return err
	}
	return cluster.Until(limit, func() (bool, error) {
		v, err := cluster.View[events.NodeView](limit, p.client, events.BucketNodes, "node-a")
		return err == nil && v.Schedulable(), err
	})
}

// control returns the names of the processes of the control plane.
func (p *plane) control() []string {
	names := append(events.ServiceNames(), "gateway")
	for i := range p.brokers {
		names = append(names, fmt.Sprintf("nats-%d", i))
	}
	return names
}

func (p *plane) stop() {
	if p.client != nil {
		p.client.Close()
	}
	p.processes.Stop(30 * time.Second)
	_ = os.RemoveAll(p.processes.Dir)
}

// memory is the current and the peak resident size of a process, in MiB.
func (p *plane) memory(name string) (now, most float64, err error) {
	pid, _ := p.processes.PID(name)
	return cluster.Memory(pid)
}
