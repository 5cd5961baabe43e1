package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
)

// Options of a Datacenter.
type Options struct {
	cluster.Options
	IPv6 bool // hosts have no other addresses, and agents find theirs by themselves
	// Racks: the first broker, the first host of services and the last node are a rack, with
	// connections to its own broker; all others have connections to the other brokers.
	Racks bool
}

// Datacenter is three brokers, two hosts with a replica of every service each, and nodes with an
// agent each.
type Datacenter struct {
	*Lab
	*cluster.Cluster
	Controls []string // hosts of services: control-1 has registry-1. All others have the names of their processes.

	racks bool
	nodes int
	log   *os.File // of the client
}

// Build starts everything and returns when all nodes are ready. Name, Bin, Dir, Nodes, Slots,
// Guarded and Restart are the caller's.
func Build(ctx context.Context, o Options) (*Datacenter, error) {
	lab, err := Open(o.IPv6)
	if err != nil {
		return nil, err
	}
	c := &Datacenter{Lab: lab, Cluster: &cluster.Cluster{}, Controls: []string{"control-1", "control-2"}, racks: o.Racks, nodes: o.Nodes}
	hosts := slices.Concat([]string{"broker-1", "broker-2", "broker-3"}, c.Controls)
	for i := range o.Nodes {
		hosts = append(hosts, fmt.Sprintf("node-%d", i+1))
	}
	for _, host := range hosts {
		if _, err := c.Host(host); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	if c.log, err = os.OpenFile(filepath.Join(o.Dir, "client.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	o.Brokers, o.Replicas, o.Log, o.Level = 3, len(c.Controls), c.log, "info"
	o.Place = func(process string) cluster.Place {
		host := process
		if service, n, _ := strings.Cut(process, "-"); slices.Contains(events.ServiceNames(), service) {
			host = "control-" + n
		}
		at := cluster.Place{Server: c.server(host), Find: o.IPv6}
		if host != "client" {
			at.Address, at.Run = c.Address(host), c.On(host)
		}
		return at
	}
	started, err := cluster.Start(ctx, o.Options)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.Cluster = started
	return c, nil
}

// Rack returns the hosts of the rack.
func (c *Datacenter) Rack() []string {
	return []string{"broker-1", c.Controls[0], fmt.Sprintf("node-%d", c.nodes)}
}

// server returns the brokers to which a host in racks connects; the host of this program is in
// none. Empty = all.
func (c *Datacenter) server(host string) string {
	brokers := []string{"broker-1"}
	switch {
	case !c.racks:
		return ""
	case !slices.Contains(c.Rack(), host):
		brokers = []string{"broker-2", "broker-3"}
	}
	for i, b := range brokers {
		brokers[i] = "nats://" + net.JoinHostPort(c.Address(b), "4222")
	}
	return strings.Join(brokers, ",")
}

// Leader returns the broker that leads a stream; empty while there is none.
func (c *Datacenter) Leader(ctx context.Context, stream string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	b, err := c.Client.Ports.Calls.Call(ctx, "$JS.API.STREAM.INFO."+stream, nil)
	if err != nil {
		return "", err
	}
	var info struct {
		Cluster struct {
			Leader string `json:"leader"`
		} `json:"cluster"`
	}
	if err := json.Unmarshal(b, &info); err != nil {
		return "", err
	}
	return info.Cluster.Leader, nil
}

// Workers returns the ids of the processes on a node other than the agent.
func (c *Datacenter) Workers(node string) ([]int, error) {
	agent, _ := c.Processes.PID(node)
	out, err := exec.Command("ip", "netns", "pids", c.namespace(node)).Output()
	if err != nil {
		return nil, fmt.Errorf("network: processes of %s: %w", node, err)
	}
	var pids []int
	for _, f := range strings.Fields(string(out)) {
		var pid int
		if _, err := fmt.Sscan(f, &pid); err == nil && pid != agent && exists(pid) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// exists reports whether a process runs; a zombie does not.
func exists(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// Close heals the network, stops all processes and removes the lab. A process that has to be killed
// is an error.
func (c *Datacenter) Close() error {
	err := errors.Join(c.HealAll(), c.Cluster.Close())
	if c.log != nil {
		err = errors.Join(err, c.log.Close())
	}
	return errors.Join(err, c.Lab.Close())
}
