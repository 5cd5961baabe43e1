// Package network builds a small data centre inside this machine (Linux, root): hosts with network
// stacks and addresses of their own behind one switch, real processes of Regroup on them, and links
// that can be cut or made lossy. Its tests inject faults.
package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/replay"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
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

// Workers returns the ids of a job's processes on a node; empty = of all jobs.
func (c *Datacenter) Workers(node string, job ident.JobID) ([]int, error) {
	pids, err := processes(c.namespace(node))
	pids = slices.DeleteFunc(pids, func(pid int) bool { of := cluster.JobOf(pid); return of == "" || job != "" && of != job })
	slices.Sort(pids)
	return pids, err
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

// Facts reads all facts so far, in order.
func (c *Datacenter) Facts(ctx context.Context, subjects ...string) ([]events.Event, error) {
	var all []events.Event
	err := c.Client.Watch(ctx, broker.FromFirst, subjects, func() error { return cluster.Enough }, func(a cluster.Arrival) error {
		all = append(all, a.Event)
		return nil
	})
	return all, err
}

// Same replays the whole log and compares the result with the services' documents. It waits until
// the log has caught up.
func (c *Datacenter) Same(ctx context.Context, job ident.JobID) (facts int, err error) {
	err = cluster.Until(ctx, func() (bool, error) {
		all, err := c.Facts(ctx, events.AllFacts)
		if err != nil {
			return false, err
		}
		r, wrong := replay.Fold(all)
		facts = r.Facts
		err = errors.Join(wrong, c.compare(ctx, r, job))
		return err == nil, err
	})
	return facts, err
}

func (c *Datacenter) compare(ctx context.Context, r *replay.Replay, id ident.JobID) error {
	var wrong error
	differ := func(what string, replayed, stored any) {
		if !reflect.DeepEqual(replayed, stored) {
			wrong = errors.Join(wrong, fmt.Errorf("%s: replayed %+v, stored %+v", what, replayed, stored))
		}
	}
	for _, n := range c.Nodes {
		v, err := cluster.View[events.NodeView](ctx, c.Client, events.BucketNodes, n)
		if err != nil {
			return err
		}
		got := r.Nodes[ident.NodeID(n)]
		if got == nil {
			return fmt.Errorf("the log does not know %s", n)
		}
		differ(n, []any{got.State, got.Incarnation, got.Slots, got.Address}, []any{v.State, v.Incarnation, v.Slots, v.Address})
	}
	pool, err := cluster.View[events.PoolView](ctx, c.Client, events.BucketPlacements, events.PoolKey)
	if err != nil {
		return err
	}
	v, err := cluster.View[events.JobView](ctx, c.Client, events.BucketJobs, string(id))
	if err != nil {
		return err
	}
	round, err := cluster.View[events.RoundView](ctx, c.Client, events.BucketRounds, string(id))
	if err != nil {
		return err
	}
	j := r.Job(id)
	var last events.RoundSealed
	if n := len(j.Sealed); n > 0 {
		last = j.Sealed[n-1]
	}
	differ("placement", tail(j.Places, len(j.Places)), tail(pool.Jobs[id].Places, len(pool.Jobs[id].Places)))
	differ("job", []any{j.State, j.Reason, last.Generation}, []any{v.State, v.Reason, v.Generation})
	differ("round", []any{j.Round, last.Generation, last.Members}, []any{round.State, round.Generation, round.Members})
	differ("incidents", tail(j.Explained(v.Incidents), len(v.Incidents)), tail(v.Incidents, len(v.Incidents)))
	return wrong
}

// tail is the end of a list, never nil: a service stores only the newest ones.
func tail[T any](all []T, n int) []T { return append([]T{}, all[max(0, len(all)-n):]...) }
