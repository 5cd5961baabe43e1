// Package cluster starts the processes of a cluster for tests and benchmarks, kills and restarts
// them, and connects as a client.
package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/internal/freeport"
	"github.com/regroup-io/regroup/jetstream"
)

// Options say what a cluster consists of.
type Options struct {
	Bin  string // folder of the binaries
	Dir  string // of logs and data; empty = a new one, which Close removes
	Name string // of the client

	Brokers  int  // 0 = 1
	Replicas int  // of each service; 0 = 1
	Nodes    int  // with an agent each
	Slots    int  // of a node
	Gateway  bool // serves at Cluster.Gateway
	Together bool // one process of regroup up is broker, services and the agent of node-1

	Guarded    bool     // every process has an identity, and connections are encrypted
	Identities []string // further ones, by role and name: "viewer eve"

	Env     []string      // of all processes
	Level   string        // of their logs; empty = warn
	Restart time.Duration // after which a process that has ended starts again; 0 = never
	Log     io.Writer     // of the client; nil = none
	Place   func(process string) Place
}

// Place is where a process runs. The zero value is this machine.
type Place struct {
	Address string   // of the host; empty = a loopback address, and ports that are free
	Run     []string // the command that runs a program there
	Server  string   // the brokers that it connects to; empty = all
	Find    bool     // an agent finds its address by itself
}

// Cluster is brokers, services and agents as separate processes: broker-1, registry-1, node-1.
type Cluster struct {
	Options   Options
	Processes Processes
	Client    *Client
	URL       string // of all brokers, separated by commas
	Gateway   string // host and port
	Auth      string // folder of the identities; empty = there are none
	Brokers   []string
	Nodes     []string

	urls []string
}

// Start starts a cluster and returns when all its nodes can take workers. An error has the logs.
func Start(ctx context.Context, o Options) (_ *Cluster, err error) {
	c := &Cluster{Options: o, Processes: Processes{Dir: o.Dir}}
	if o.Dir == "" {
		if c.Processes.Dir, err = os.MkdirTemp("", "regroup-cluster-"); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("the cluster does not come up"))
	defer cancel()
	start := c.separate
	if o.Together {
		start = c.together
	}
	if err = start(ctx); err == nil {
		err = c.Ready(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, errors.New(c.Processes.Logs(1000)), c.Close())
	}
	return c, nil
}

// Close ends all processes and removes the folder if Start made it.
func (c *Cluster) Close() error {
	if c.Client != nil {
		c.Client.Close()
	}
	c.Processes.Stop(20 * time.Second)
	if c.Options.Dir != "" {
		return nil
	}
	return os.RemoveAll(c.Processes.Dir)
}

// together starts `regroup up`, which writes the address of its broker into server.json.
func (c *Cluster) together(ctx context.Context) error {
	c.Nodes = []string{"node-1"}
	if err := c.Run("up", "up", "--slots", strconv.Itoa(c.Options.Slots), "--node", "node-1"); err != nil {
		return err
	}
	err := Until(ctx, func() (bool, error) {
		b, err := os.ReadFile(filepath.Join(c.state("up"), "server.json"))
		if err != nil {
			return false, err
		}
		var at struct{ URL, Secret string }
		err = json.Unmarshal(b, &at)
		c.URL = strings.Replace(at.URL, "://", "://regroup:"+at.Secret+"@", 1)
		return err == nil && c.URL != "", err
	})
	if err != nil {
		return err
	}
	return c.connect(ctx)
}

func (c *Cluster) separate(ctx context.Context) error {
	n := max(c.Options.Brokers, 1)
	var listen, routes []string
	for i := range n {
		name := fmt.Sprintf("broker-%d", i+1)
		host, ports := c.place(name).Address, []string{"4222", "6222"}
		both := []string{net.JoinHostPort(host, ports[0]), net.JoinHostPort(host, ports[1])}
		if host == "" {
			var err error
			if both, err = freeport.Addresses(2); err != nil {
				return err
			}
		}
		c.Brokers, listen, routes, c.urls = append(c.Brokers, name), append(listen, both[0]), append(routes, both[1]), append(c.urls, "nats://"+both[0])
	}
	c.URL = strings.Join(c.urls, ",")
	for i := range c.Options.Nodes {
		c.Nodes = append(c.Nodes, fmt.Sprintf("node-%d", i+1))
	}
	if c.Options.Guarded {
		if err := c.identities(ctx); err != nil {
			return err
		}
	}
	for i, name := range c.Brokers {
		args := []string{"serve", "nats", "--name", name, "--listen", listen[i]}
		if n > 1 {
			args = append(args, "--cluster", "e2e", "--cluster-listen", routes[i], "--routes", strings.Join(routes, ","))
		}
		if err := c.Run(name, args...); err != nil {
			return err
		}
	}
	if n > 1 {
		if _, err := c.Command(ctx, "init", "--server", c.URL, "--replicas", strconv.Itoa(n)); err != nil {
			return err
		}
	}
	if err := c.connect(ctx); err != nil {
		return err
	}
	for _, name := range c.Services() {
		service, _, _ := strings.Cut(name, "-")
		if err := c.Run(name, "serve", service, "--server", c.server(name)); err != nil {
			return err
		}
	}
	if c.Options.Gateway {
		var err error
		if c.Gateway, err = FreeAddress(); err != nil {
			return err
		}
		if err := c.Run("gateway", "serve", "gateway", "--listen", c.Gateway, "--server", c.URL); err != nil {
			return err
		}
	}
	for _, name := range c.Nodes {
		if err := c.Agent(name, c.Options.Slots); err != nil {
			return err
		}
	}
	return nil
}

// Services are the names of the processes of all services: registry-1, registry-2.
func (c *Cluster) Services() (all []string) {
	for i := range max(c.Options.Replicas, 1) {
		for _, s := range events.ServiceNames() {
			all = append(all, fmt.Sprintf("%s-%d", s, i+1))
		}
	}
	return all
}

// Agent starts the agent of a node.
func (c *Cluster) Agent(node string, slots int) error {
	args := []string{"agent", "--server", c.server(node), "--node", node, "--slots", strconv.Itoa(slots)}
	if at := c.place(node); !at.Find {
		args = append(args, "--advertise", cmp.Or(at.Address, "127.0.0.1"))
	}
	return c.Run(node, args...)
}

// Run starts a process of regroup with a folder for its state, where its place is.
func (c *Cluster) Run(name string, args ...string) error {
	args = append(args, "--state-dir", c.state(name), "--log-level", cmp.Or(c.Options.Level, "warn"))
	return c.Processes.Start(Command{Name: name, Args: append(slices.Clone(c.place(name).Run), c.regroup(args...)...), Env: c.Options.Env, Restart: c.Options.Restart})
}

// Command runs a command of regroup to its end, and returns what it prints.
func (c *Cluster) Command(ctx context.Context, args ...string) (string, error) {
	args = c.regroup(args...)
	return Output(exec.CommandContext(ctx, args[0], args[1:]...))
}

func (c *Cluster) regroup(args ...string) []string {
	if c.Auth != "" {
		args = append(args, "--auth", c.Auth)
	}
	return append([]string{filepath.Join(c.Options.Bin, "regroup")}, args...)
}

func (c *Cluster) state(name string) string { return filepath.Join(c.Processes.Dir, "state-"+name) }

func (c *Cluster) place(name string) Place {
	if c.Options.Place == nil {
		return Place{}
	}
	return c.Options.Place(name)
}

// server returns the brokers that a process connects to. Each replica of a service prefers a
// different one.
func (c *Cluster) server(name string) string {
	if at := c.place(name); at.Server != "" || c.urls == nil {
		return cmp.Or(at.Server, c.URL)
	}
	first := 0
	if service, n, _ := strings.Cut(name, "-"); slices.Contains(events.ServiceNames(), service) {
		first, _ = strconv.Atoi(n)
	}
	first = max(first-1, 0) % len(c.urls)
	return strings.Join(append(slices.Clone(c.urls[first:]), c.urls[:first]...), ",")
}

// identities issues identities for the brokers, the nodes, this client and Options.Identities.
func (c *Cluster) identities(ctx context.Context) error {
	c.Auth = filepath.Join(c.Processes.Dir, "auth")
	init := []string{"auth", "init"}
	for _, name := range c.Brokers {
		init = append(init, "--host", cmp.Or(c.place(name).Address, "127.0.0.1"))
	}
	if _, err := c.Command(ctx, init...); err != nil {
		return err
	}
	all := append([]string{"client " + c.Options.Name}, c.Options.Identities...)
	for _, n := range c.Nodes {
		all = append(all, "agent "+n)
	}
	for _, who := range all {
		if _, err := c.Command(ctx, append([]string{"auth", "issue"}, strings.Fields(who)...)...); err != nil {
			return err
		}
	}
	return nil
}

// Credentials returns the file of an identity, and that of the authority which signed the brokers'
// certificates.
func (c *Cluster) Credentials(name string) (credentials, authority string) {
	return filepath.Join(c.Auth, "users", name+".creds"), filepath.Join(c.Auth, "tls", "ca.pem")
}

func (c *Cluster) connect(ctx context.Context) (err error) {
	o := jetstream.ConnectOptions{URL: cmp.Or(c.place("client").Server, c.URL), Name: c.Options.Name}
	if c.Auth != "" {
		o.Credentials, o.RootCA = c.Credentials(c.Options.Name)
	}
	c.Client, err = Connect(ctx, o, c.Options.Log)
	return err
}

// Ready waits until all nodes can take workers.
func (c *Cluster) Ready(ctx context.Context) error {
	for _, n := range c.Nodes {
		if err := c.NodeIs(ctx, n, events.NodeStateReady); err != nil {
			return err
		}
	}
	return nil
}

// NodeIs waits until a node has this state in discovery's view.
func (c *Cluster) NodeIs(ctx context.Context, node string, want events.NodeState) error {
	return Until(ctx, func() (bool, error) {
		v, err := View[events.NodeView](ctx, c.Client, events.BucketNodes, node)
		return err == nil && v.State == want && !v.Draining, errors.Join(err, fmt.Errorf("%s is %q (%s), waiting until it is %q", node, v.State, v.Reason, want))
	})
}

// PIDs returns the ids of processes.
func (c *Cluster) PIDs(names ...string) (pids []int) {
	for _, name := range names {
		pids = append(pids, c.Processes.PID(name))
	}
	return pids
}
