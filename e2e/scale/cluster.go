package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
)

const (
	brokers  = 3
	replicas = 2 // of each service

	// lower is the nice value of the control plane: real agents have machines of their own, and
	// their heartbeats must not wait for the measured processes.
	lower = "5"
)

// plane is the control plane under measurement.
type plane struct {
	processes cluster.Processes
	url       string
	client    *cluster.Client
}

func start(ctx context.Context, bin string) (*plane, error) {
	dir, err := os.MkdirTemp("", "regroup-scale-")
	if err != nil {
		return nil, err
	}
	p := &plane{processes: cluster.Processes{Dir: dir}}
	if err := p.start(ctx, filepath.Join(bin, "regroup")); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *plane) start(ctx context.Context, regroup string) error {
	var listen, routes, urls []string
	for range brokers {
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
	for i := range brokers {
		name := fmt.Sprintf("nats-%d", i)
		err := p.processes.Start(cluster.Command{Name: name, Args: []string{
			"nice", "-n", lower, regroup, "serve", "nats", "--name", name, "--listen", listen[i], "--cluster", "scale", "--cluster-listen", routes[i],
			"--routes", strings.Join(routes, ","), "--state-dir", filepath.Join(p.processes.Dir, name), "--log-level", "warn",
		}})
		if err != nil {
			return err
		}
	}
	if out, err := exec.CommandContext(ctx, regroup, "init", "--replicas", fmt.Sprint(brokers), "--server", p.url).CombinedOutput(); err != nil {
		return fmt.Errorf("regroup init: %w: %s", err, out)
	}
	var err error
	if p.client, err = cluster.Connect(ctx, p.url, "scale", os.Stderr); err != nil {
		return err
	}
	for _, s := range events.ServiceNames() {
		for i := range replicas {
			// Each replica prefers another broker, as if they were spread over machines.
			url := strings.Join(append(urls[i:brokers:brokers], urls[:i]...), ",")
			name := fmt.Sprintf("%s-%d", s, i)
			err := p.processes.Start(cluster.Command{Name: name, Args: []string{
				"nice", "-n", lower, regroup, "serve", s, "--server", url, "--state-dir", filepath.Join(p.processes.Dir, name), "--log-level", "warn",
			}})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *plane) stop() {
	if p.client != nil {
		p.client.Close()
	}
	p.processes.Stop(20 * time.Second)
	_ = os.RemoveAll(p.processes.Dir)
}

// names lists the processes by kind.
func (p *plane) names() map[string][]string {
	all := map[string][]string{}
	for i := range brokers {
		all["nats"] = append(all["nats"], fmt.Sprintf("nats-%d", i))
	}
	for _, s := range events.ServiceNames() {
		for i := range replicas {
			all[s] = append(all[s], fmt.Sprintf("%s-%d", s, i))
		}
	}
	return all
}
