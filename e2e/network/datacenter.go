package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/jetstream"
)

// Options of a Datacenter.
type Options struct {
	Bin   string // directory of the binaries
	Dir   string // directory of logs and of the processes' data
	Nodes int
	Slots int // per node
	// Restart is the delay after which a killed process is restarted automatically; 0 = never.
	Restart time.Duration
	Name    string // name of this client
	IPv6    bool   // hosts have no other addresses, and agents find theirs by themselves
	Guarded bool   // every process has an identity of its own, and connections are encrypted
	// Racks: the first broker, the first host of services and the last node are a rack, with
	// connections to its own broker; all others have connections to the other brokers.
	Racks bool
}

// Datacenter is three brokers, two hosts with a replica of every service each, and nodes with an
// agent each.
type Datacenter struct {
	*Lab
	Processes cluster.Processes
	Client    *cluster.Client
	URL       string // of all brokers

	Brokers, Controls, Nodes []string // hosts; the processes of brokers and agents have the names of their hosts

	urls    []string // of the brokers
	options Options
	auth    string   // directory of the identities; empty = there are none
	log     *os.File // of the client
}

// environment is that of all processes. Quarantine is disabled, because all faults are injected,
// often into the same few nodes.
func (c *Datacenter) environment() []string {
	e := []string{"REGROUP_DISCOVERY_QUARANTINE_CHARGES=0", "REGROUP_DISCOVERY_QUARANTINE_LOSSES=0"}
	if c.auth == "" {
		e = append(e, "REGROUP_NATS_SYSTEM_PASSWORD=of-the-lab") // so that discovery receives the disconnections of agents
	}
	return e
}

// Services are the names of the control plane's services. A replica's process is called
// SERVICE-HOST.
var Services = events.ServiceNames()

// Build starts everything and returns when all nodes are ready.
func Build(ctx context.Context, o Options) (*Datacenter, error) {
	lab, err := open(o.IPv6)
	if err != nil {
		return nil, err
	}
	c := &Datacenter{Lab: lab, options: o}
	c.Processes.Dir = o.Dir
	if err := c.start(ctx); err != nil {
		for _, name := range c.Processes.Names() {
			err = fmt.Errorf("%w\n%s: %s", err, name, c.Processes.Log(name, 500))
		}
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Datacenter) start(ctx context.Context) error {
	add := func(group *[]string, name string, n int) error {
		for i := range n {
			host := fmt.Sprintf("%s-%d", name, i+1)
			if _, err := c.Host(host); err != nil {
				return err
			}
			*group = append(*group, host)
		}
		return nil
	}
	if err := errors.Join(add(&c.Brokers, "broker", 3), add(&c.Controls, "control", 2), add(&c.Nodes, "node", c.options.Nodes)); err != nil {
		return err
	}
	var routes []string
	for _, b := range c.Brokers {
		c.urls, routes = append(c.urls, "nats://"+net.JoinHostPort(c.Address(b), "4222")), append(routes, net.JoinHostPort(c.Address(b), "6222"))
	}
	c.URL = strings.Join(c.urls, ",")
	if c.options.Guarded {
		if err := c.identities(ctx); err != nil {
			return err
		}
	}
	for i, b := range c.Brokers {
		if err := c.run(b, b, "serve", "nats", "--name", b, "--listen", net.JoinHostPort(c.Address(b), "4222"), "--cluster", "lab", "--cluster-listen", routes[i],
			"--routes", strings.Join(routes, ","), "--state-dir", filepath.Join(c.options.Dir, b)); err != nil {
			return err
		}
	}
	if err := c.init(ctx); err != nil {
		return err
	}
	var err error
	if c.log, err = os.OpenFile(filepath.Join(c.options.Dir, "client.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	if c.Client, err = c.connect(ctx); err != nil {
		return err
	}
	for _, host := range c.Controls {
		for _, s := range Services {
			if err := c.run(s+"-"+host, host, "serve", s, "--server", c.server(host)); err != nil {
				return err
			}
		}
	}
	for _, n := range c.Nodes {
		args := []string{"agent", "--server", c.server(n), "--node", n, "--slots", fmt.Sprint(c.options.Slots), "--state-dir", filepath.Join(c.options.Dir, n)}
		if !c.options.IPv6 {
			args = append(args, "--advertise", c.Address(n))
		}
		if err := c.run(n, n, args...); err != nil {
			return err
		}
	}
	return c.Ready(ctx)
}

// Rack returns the hosts of the rack.
func (c *Datacenter) Rack() []string {
	return []string{c.Brokers[0], c.Controls[0], c.Nodes[len(c.Nodes)-1]}
}

// server returns the brokers to which a host connects; the host of this program has no name.
func (c *Datacenter) server(host string) string {
	switch {
	case !c.options.Racks:
		return c.URL
	case slices.Contains(c.Rack(), host):
		return c.urls[0]
	}
	return strings.Join(c.urls[1:], ",")
}

// init creates streams and buckets with three replicas.
func (c *Datacenter) init(ctx context.Context) error {
	args := c.On(c.Controls[0], c.regroup("init", "--server", c.URL, "--replicas", "3")...)
	if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("regroup init: %w: %s", err, out)
	}
	return nil
}

// identities makes the identities of everything in the data centre.
func (c *Datacenter) identities(ctx context.Context) error {
	c.auth = filepath.Join(c.options.Dir, "auth")
	init := []string{"auth", "init"}
	for _, b := range c.Brokers {
		init = append(init, "--host", c.Address(b))
	}
	commands := [][]string{init, {"auth", "issue", "client", c.options.Name}}
	for _, n := range c.Nodes {
		commands = append(commands, []string{"auth", "issue", "agent", n})
	}
	for _, args := range commands {
		args = c.regroup(args...)
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", args, err, out)
		}
	}
	return nil
}

// regroup returns the command line of a command.
func (c *Datacenter) regroup(args ...string) []string {
	if c.auth != "" {
		args = append(args, "--auth", c.auth)
	}
	return append([]string{filepath.Join(c.options.Bin, "regroup")}, args...)
}

// connect connects this program as a client.
func (c *Datacenter) connect(ctx context.Context) (*cluster.Client, error) {
	if c.auth == "" {
		return cluster.Connect(ctx, c.server(""), c.options.Name, c.log)
	}
	return cluster.ConnectWith(ctx, jetstream.ConnectOptions{
		URL: c.server(""), Name: c.options.Name, Logger: slog.New(slog.NewTextHandler(c.log, nil)),
		Credentials: filepath.Join(c.auth, "users", c.options.Name+".creds"), RootCA: filepath.Join(c.auth, "tls", "ca.pem"),
	})
}

func (c *Datacenter) run(name, host string, args ...string) error {
	return c.Processes.Start(cluster.Command{Name: name, Restart: c.options.Restart, Env: c.environment(), Args: c.On(host, c.regroup(args...)...)})
}

// Ready waits until every node is ready in discovery's view.
func (c *Datacenter) Ready(ctx context.Context) error {
	for _, n := range c.Nodes {
		if err := c.NodeIs(ctx, n, events.NodeStateReady); err != nil {
			return err
		}
	}
	return nil
}

// NodeIs waits until a node has this state in discovery's view.
func (c *Datacenter) NodeIs(ctx context.Context, node string, want events.NodeState) error {
	return cluster.Until(ctx, func() (bool, error) {
		v, err := cluster.View[events.NodeView](ctx, c.Client, events.BucketNodes, node)
		return err == nil && v.State == want, errors.Join(err, fmt.Errorf("%s is %q (%s), waiting until it is %q", node, v.State, v.Reason, want))
	})
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

// Replicas are the processes of all services.
func (c *Datacenter) Replicas() []string {
	var all []string
	for _, host := range c.Controls {
		for _, s := range Services {
			all = append(all, s+"-"+host)
		}
	}
	return all
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
	err := c.HealAll()
	if c.Client != nil {
		c.Client.Close()
	}
	if c.log != nil {
		err = errors.Join(err, c.log.Close())
	}
	c.Processes.Stop(20 * time.Second)
	return errors.Join(err, c.Lab.Close())
}
