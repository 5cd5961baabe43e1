package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/jetstream"
)

const (
	replicas = 2 // of each service
	nodes    = 3
	slots    = 4 // of a node: any two nodes hold all jobs
	broker   = "nats"

	systemPassword = "of-the-upgrade"
	// patience bounds each wait for one condition.
	patience = 2 * time.Minute
	// stopWithin is how long all processes may take to end.
	stopWithin = 30 * time.Second
)

// durables are the consumers that the replicas of a service share.
var durables = map[string][][2]string{
	events.ServiceDiscovery:  {{events.StreamCommands, "discovery"}, {events.StreamFacts, "discovery-evt"}},
	events.ServiceScheduler:  {{events.StreamFacts, "scheduler"}},
	events.ServiceRendezvous: {{events.StreamFacts, "rendezvous-evt"}},
	events.ServiceRegistry:   {{events.StreamCommands, "registry-cmd"}, {events.StreamFacts, "registry-evt"}},
}

// deployment is a cluster of separate processes: a broker, the replicas of all services, and
// agents.
type deployment struct {
	dir, address, url string
	processes         cluster.Processes
	client            *cluster.Client
	system            *nats.Conn       // of the system account: what the broker knows of connections
	runs              map[string]build // by process
	log               io.Writer
}

func replica(service string, n int) string { return service + "-" + strconv.Itoa(n) }
func node(n int) string                    { return "node-" + strconv.Itoa(n) }

// deploy starts a cluster of one build and returns when all of it serves.
func deploy(ctx context.Context, dir string, b build, log io.Writer) (_ *deployment, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	address, err := cluster.FreeAddress()
	if err != nil {
		return nil, err
	}
	d := &deployment{dir: dir, address: address, url: "nats://" + address, runs: map[string]build{}, log: log}
	d.processes.Dir = dir
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close(true))
		}
	}()
	if err := d.start(broker, b); err != nil {
		return d, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the cluster does not come up"))
	defer cancel()
	if d.client, err = cluster.Connect(ctx, d.url, "upgrade", nil); err != nil {
		return d, err
	}
	if d.system, err = nats.Connect(d.url, nats.UserInfo(jetstream.SystemUser, systemPassword), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond)); err != nil {
		return d, err
	}
	for _, s := range events.ServiceNames() {
		for n := range replicas {
			connected, err := d.connections(ctx, s)
			if err == nil {
				err = d.start(replica(s, n), b)
			}
			if err == nil {
				err = d.serves(ctx, replica(s, n), connected)
			}
			if err != nil {
				return d, err
			}
		}
	}
	for n := range nodes {
		if err := d.start(node(n), b); err != nil {
			return d, err
		}
		if err := d.ready(ctx, node(n), ""); err != nil {
			return d, err
		}
	}
	return d, nil
}

// start starts a process of a build under its name, on the state that the last one of that name has
// left.
func (d *deployment) start(name string, b build) error {
	args := []string{b.binary("regroup")}
	state := filepath.Join(d.dir, "state-"+name)
	switch role, _, _ := strings.Cut(name, "-"); role {
	case broker:
		args = append(args, "serve", "nats", "--listen", d.address, "--state-dir", state)
	case "node":
		args = append(args, "agent", "--server", d.url, "--node", name, "--slots", strconv.Itoa(slots), "--advertise", "127.0.0.1", "--state-dir", state)
	default:
		args = append(args, "serve", role, "--server", d.url, "--state-dir", state)
	}
	if err := d.processes.Start(cluster.Command{Name: name, Args: args, Env: []string{"REGROUP_NATS_SYSTEM_PASSWORD=" + systemPassword}}); err != nil {
		return err
	}
	d.runs[name] = b
	return nil
}

// stop asks a process to end and returns when it has.
func (d *deployment) stop(ctx context.Context, name string) error {
	if err := d.processes.Signal(name, syscall.SIGTERM); err != nil {
		return err
	}
	return d.until(ctx, func(context.Context) error {
		if d.processes.Running(name) {
			return fmt.Errorf("%s does not end", name)
		}
		return nil
	})
}

// until waits until a condition has no complaint, no longer than patience.
func (d *deployment) until(ctx context.Context, condition func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited for %v", patience))
	defer cancel()
	return cluster.Until(ctx, func() (bool, error) {
		err := condition(ctx)
		return err == nil, err
	})
}

// connection is what the broker knows of one.
type connection struct {
	ID            uint64 `json:"cid"`
	Name          string `json:"name"`
	Subscriptions []struct {
		Subject string `json:"subject"`
	} `json:"subscriptions_list_detail"`
}

// connections asks the broker for all connections of a name, by their number.
func (d *deployment) connections(ctx context.Context, name string) (map[uint64]connection, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	answer, err := d.system.RequestWithContext(ctx, "$SYS.REQ.SERVER.PING.CONNZ", []byte(`{"subscriptions_detail":true,"limit":1024}`))
	if err != nil {
		return nil, fmt.Errorf("connections of the broker: %w", err)
	}
	var all struct {
		Data struct {
			Connections []connection `json:"connections"`
		} `json:"data"`
	}
	if err := json.Unmarshal(answer.Data, &all); err != nil {
		return nil, fmt.Errorf("connections of the broker: %w", err)
	}
	found := map[uint64]connection{}
	for _, c := range all.Data.Connections {
		if c.Name == name {
			found[c.ID] = c
		}
	}
	return found, nil
}

// serves waits until a replica that was started serves: a connection of its service that was not
// among those before answers requests. Services that answer none in the old build are known by the
// replicas that wait for the next message of their consumers.
func (d *deployment) serves(ctx context.Context, name string, before map[uint64]connection) error {
	service, _, _ := strings.Cut(name, "-")
	return d.until(ctx, func(ctx context.Context) error {
		if !d.processes.Running(name) {
			return fmt.Errorf("%s has ended: %s", name, d.processes.Log(name, 2000))
		}
		now, err := d.connections(ctx, service)
		if err != nil {
			return err
		}
		for id, c := range now {
			if _, old := before[id]; old {
				continue
			}
			for _, s := range c.Subscriptions {
				if strings.HasPrefix(s.Subject, events.RequestSubject(service, "")) {
					return nil
				}
			}
			if len(c.Subscriptions) > 0 && d.consume(ctx, service, len(now)) == nil {
				return nil
			}
		}
		return fmt.Errorf("%s does not serve: %s", name, d.processes.Log(name, 2000))
	})
}

// consume checks that at least so many requests for messages wait at each consumer of a service.
func (d *deployment) consume(ctx context.Context, service string, waiting int) error {
	for _, durable := range durables[service] {
		b, err := d.client.Ports.Calls.Call(ctx, "$JS.API.CONSUMER.INFO."+durable[0]+"."+durable[1], nil)
		if err != nil {
			return err
		}
		var info struct {
			Waiting int `json:"num_waiting"`
		}
		if err := json.Unmarshal(b, &info); err != nil {
			return err
		}
		if info.Waiting < waiting {
			return fmt.Errorf("%d requests wait at consumer %s, want %d", info.Waiting, durable[1], waiting)
		}
	}
	return nil
}

// ready waits until discovery has a node ready under another agent than the one before.
func (d *deployment) ready(ctx context.Context, name string, before events.Incarnation) error {
	return d.until(ctx, func(ctx context.Context) error {
		v, err := d.node(ctx, name)
		if err == nil && (v.State != events.NodeStateReady || v.Draining || v.Incarnation == before) {
			err = fmt.Errorf("%s is %s (%s) under agent %s: %s", name, v.State, v.Reason, v.Incarnation, d.processes.Log(name, 2000))
		}
		return err
	})
}

func (d *deployment) node(ctx context.Context, name string) (events.NodeView, error) {
	return cluster.View[events.NodeView](ctx, d.client, events.BucketNodes, name)
}

// report runs a binary as it runs in a process, to hear its version.
func (d *deployment) report(ctx context.Context, name string) error {
	pid, _ := d.processes.PID(name)
	if err := d.runs[name].check(ctx, fmt.Sprintf("/proc/%d/exe", pid)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// trouble are the log lines that say that a process could not understand another.
func (d *deployment) trouble() (found []string) {
	for _, name := range d.processes.Names() {
		for line := range bytes.Lines(d.processes.Log(name, 0)) {
			for _, sign := range []string{"panic:", "code=newer", "code=invalid", "code=internal"} {
				if bytes.Contains(line, []byte(sign)) {
					found = append(found, name+": "+strings.TrimSpace(string(line)))
				}
			}
		}
	}
	return found
}

// close ends all processes, those of workers too, and shows the logs if something is wrong.
func (d *deployment) close(wrong bool) error {
	if d.client != nil {
		d.client.Close()
	}
	if d.system != nil {
		d.system.Close()
	}
	d.processes.Stop(stopWithin)
	left, err := killLeft(d.dir)
	if err == nil && len(left) > 0 && !wrong {
		err = fmt.Errorf("processes were left: %s", strings.Join(left, "; "))
	}
	if wrong {
		for _, name := range d.processes.Names() {
			fmt.Fprintf(d.log, "--- %s ---\n%s", name, d.processes.Log(name, 6000))
		}
	}
	return err
}

// killLeft kills the processes that name a folder in their command line, and says which there were.
func killLeft(dir string) (left []string, err error) {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, file := range all {
		b, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(b, []byte(dir)) {
			continue // it has ended meanwhile, or is another's
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		left = append(left, fmt.Sprintf("%d: %s", pid, bytes.ReplaceAll(b, []byte{0}, []byte{' '})))
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return left, err
		}
	}
	return left, nil
}
