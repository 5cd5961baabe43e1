package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// single is a `regroup up` process: broker, services and an agent.
type single struct {
	*cluster.Client
	bin, dir  string
	url       string // of the broker
	processes cluster.Processes
}

const up = "up"

func start(ctx context.Context, bin string, slots int) (*single, error) {
	dir, err := os.MkdirTemp("", "regroup-bench-")
	if err != nil {
		return nil, err
	}
	s := &single{bin: bin, dir: dir, processes: cluster.Processes{Dir: dir}}
	if err := s.start(ctx, slots); err != nil {
		err = fmt.Errorf("%w: %s", err, s.processes.Log(up, 2000))
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *single) start(ctx context.Context, slots int) error {
	if err := s.processes.Start(cluster.Command{Name: up, Args: []string{
		filepath.Join(s.bin, "regroup"), "up", "--state-dir", s.dir, "--slots", strconv.Itoa(slots), "--node", "node-a", "--log-level", "warn",
	}}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := cluster.Until(ctx, func() (bool, error) { // the file with the broker's address
		b, err := os.ReadFile(filepath.Join(s.dir, "server.json"))
		if err != nil {
			return false, err
		}
		var at struct{ URL, Secret string }
		err = json.Unmarshal(b, &at)
		s.url = strings.Replace(at.URL, "://", "://regroup:"+at.Secret+"@", 1)
		return err == nil && s.url != "", err
	}); err != nil {
		return err
	}
	var err error
	s.Client, err = cluster.Connect(ctx, s.url, "bench", nil)
	return err
}

func (s *single) stop() {
	if s.Client != nil {
		s.Close()
	}
	s.processes.Stop(20 * time.Second)
	_ = os.RemoveAll(s.dir)
}

// join starts an agent on a new node. An earlier agent with the same name must be leaving.
func (s *single) join(ctx context.Context, node string, slots int) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := cluster.Until(ctx, func() (bool, error) { return !s.processes.Running(node), nil }); err != nil {
		return err
	}
	return s.processes.Start(cluster.Command{Name: node, Args: []string{
		filepath.Join(s.bin, "regroup"), "agent", "--server", s.url, "--node", node, "--slots", strconv.Itoa(slots), "--advertise", "127.0.0.1",
		"--state-dir", filepath.Join(s.dir, "state-"+node), "--log-level", "warn",
	}})
}

// leave stops the agent of a node; its workers leave at their next commit.
func (s *single) leave(node string) error { return s.processes.Signal(node, syscall.SIGTERM) }

// submit submits a job of the counter example, in-process recovery, and returns its id.
func (s *single) submit(ctx context.Context, name string, workers spec.Workers, args ...string) (events.JobID, error) {
	return submit(ctx, s.Client, s.bin, name, workers, args...)
}

func submit(ctx context.Context, c *cluster.Client, bin, name string, workers spec.Workers, args ...string) (events.JobID, error) {
	unlimited := 10_000 // the maximum
	return c.Submit(ctx, spec.Job{
		Name: name, Command: append([]string{filepath.Join(bin, "counter")}, args...), Workers: workers,
		Recovery: spec.RecoveryInProcess, Failures: spec.Failures{Max: &unlimited},
	})
}

// watch calls fn with every new fact of the worker, round and job families until fn returns
// cluster.Enough. ready is called once the subscription is active.
func watch(ctx context.Context, c *cluster.Client, ready func() error, fn func(cluster.Arrival) error) error {
	return c.Watch(ctx, events.FromNew, []string{
		events.FamilySubject(events.FamilyWorker, "*"), events.FamilySubject(events.FamilyRound, "*"), events.FamilySubject(events.FamilyJob, "*"),
	}, ready, fn)
}
