package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/e2e/network"
)

// kind is a kind of fault. strike returns its target and how to heal it; nil = it heals by itself.
// An empty target means that there was none.
type kind struct {
	name   string
	weight int
	hold   time.Duration // mean
	strike strike
}

// The frequencies are estimates for large clusters, with every kind frequent enough to occur in 200
// faults.
var kinds = []kind{
	{"worker killed", 6, 0, worker(syscall.SIGKILL)},
	{"worker frozen", 2, time.Second, worker(syscall.SIGSTOP)},
	{"agent killed with its workers", 3, 0, killed(nodes)},
	{"agent frozen", 2, 2 * time.Second, frozen(nodes)},
	{"service killed", 5, 0, killed(replicas)},
	{"service frozen", 3, 2 * time.Second, frozen(replicas)},
	{"broker killed", 3, 0, killed(brokers)},
	{"broker frozen", 1, 2 * time.Second, frozen(brokers)},
	{"node cut off, both ways", 2, 3 * time.Second, links(nodes, network.Isolate)},
	{"node cut off, one way", 2, 3 * time.Second, links(nodes, oneWay)},
	{"node lossy, 30 %", 2, 2 * time.Second, links(nodes, func(h string) []network.Rule { return network.Lossy(h, 0.3) })},
	{"two nodes cut from each other", 2, 2 * time.Second, pair},
	{"services' host cut off", 1, 3 * time.Second, links(controls, network.Isolate)},
	{"broker cut off", 1, 3 * time.Second, links(brokers, network.Isolate)},
	{"rack cut off: a broker, services and a node", 1, 3 * time.Second, rack},
}

// strike is what a fault does to a data centre.
type strike = func(c *network.Datacenter, f fault) (hit string, heal func() error, err error)

func nodes(c *network.Datacenter) []string    { return c.Nodes }
func replicas(c *network.Datacenter) []string { return c.Services() }
func brokers(c *network.Datacenter) []string  { return c.Brokers }
func controls(c *network.Datacenter) []string { return c.Controls }

func killed(of func(*network.Datacenter) []string) strike {
	return running(of, func(c *network.Datacenter, name string) (func() error, error) { return nil, c.Processes.Kill(name) })
}

func frozen(of func(*network.Datacenter) []string) strike {
	return running(of, func(c *network.Datacenter, name string) (func() error, error) {
		pid := c.Processes.PID(name)
		return func() error { return sendSignal(pid, syscall.SIGCONT) }, c.Processes.Signal(name, syscall.SIGSTOP)
	})
}

// running hits a process, unless its supervisor has not restarted it yet.
func running(of func(*network.Datacenter) []string, do func(c *network.Datacenter, name string) (func() error, error)) strike {
	return func(c *network.Datacenter, f fault) (string, func() error, error) {
		name := of(c)[f.target%len(of(c))]
		if !c.Processes.Running(name) {
			return "", nil, nil
		}
		heal, err := do(c, name)
		return name, heal, err
	}
}

// worker hits one of the workers.
func worker(s syscall.Signal) strike {
	return func(c *network.Datacenter, f fault) (string, func() error, error) {
		var pids []int
		for _, n := range c.Nodes {
			w, err := c.Workers(n, "")
			if err != nil {
				return "", nil, err
			}
			pids = append(pids, w...)
		}
		if len(pids) == 0 {
			return "", nil, nil
		}
		pid := pids[f.target%len(pids)]
		heal := func() error { return sendSignal(pid, syscall.SIGCONT) }
		if s == syscall.SIGKILL {
			heal = nil
		}
		return fmt.Sprintf("worker %d", pid), heal, sendSignal(pid, s)
	}
}

// sendSignal sends a signal to a process that may have ended.
func sendSignal(pid int, s syscall.Signal) error {
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%v to %d: %w", s, pid, err)
	}
	return nil
}

func links(of func(*network.Datacenter) []string, rules func(host string) []network.Rule) strike {
	return func(c *network.Datacenter, f fault) (string, func() error, error) {
		host := of(c)[f.target%len(of(c))]
		broken := rules(host)
		return host, func() error { return c.Heal(broken...) }, c.Break(broken...)
	}
}

// oneWay drops all outgoing packets of a host.
func oneWay(host string) []network.Rule { return []network.Rule{network.Cut(host, "")} }

func pair(c *network.Datacenter, f fault) (string, func() error, error) {
	a := f.target % len(c.Nodes)
	b := (a + 1 + f.other%(len(c.Nodes)-1)) % len(c.Nodes)
	broken := network.CutBoth(c.Nodes[a], c.Nodes[b])
	return c.Nodes[a] + " and " + c.Nodes[b], func() error { return c.Heal(broken...) }, c.Break(broken...)
}

// rack cuts a broker, a host of services and a node off together: they reach each other.
func rack(c *network.Datacenter, f fault) (string, func() error, error) {
	hosts := []string{c.Brokers[f.target%len(c.Brokers)], c.Controls[f.other%len(c.Controls)], c.Nodes[f.target%len(c.Nodes)]}
	broken := c.CutOff(hosts...)
	return strings.Join(hosts, ", "), func() error { return c.Heal(broken...) }, c.Break(broken...)
}

// fault is one injected fault. The same seed gives the same faults; the placement of workers at
// that time depends on the cluster.
type fault struct {
	kind   kind
	target int           // which one of its kind's targets, modulo their number
	other  int           // the second one, for a link
	hold   time.Duration // time until it is healed; killed processes are restarted by their supervisor
	rush   bool          // the next fault overlaps this one
}

// schedule draws n faults.
func schedule(seed uint64, n int) []fault {
	r := rand.New(rand.NewPCG(seed, 0))
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	all := make([]fault, n)
	for i := range all {
		pick := r.IntN(total)
		f := &all[i]
		for _, k := range kinds {
			if pick < k.weight {
				f.kind = k
				break
			}
			pick -= k.weight
		}
		f.target, f.other = r.IntN(1<<20), r.IntN(1<<20)
		f.hold = 100*time.Millisecond + time.Duration(min(r.ExpFloat64(), 5)*float64(f.kind.hold))
		f.rush = r.IntN(4) == 0
	}
	return all
}
