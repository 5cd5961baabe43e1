package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/jetstream"
)

// cluster is one `regroup up`: broker, services and an agent of four slots in one process.
type cluster struct {
	bin   string
	dir   string
	cmd   *exec.Cmd
	conn  *jetstream.Conn
	ports events.Ports
}

func start(ctx context.Context, bin string) (*cluster, error) {
	dir, err := os.MkdirTemp("", "regroup-bench-")
	if err != nil {
		return nil, err
	}
	c := &cluster{bin: bin, dir: dir}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c.cmd = exec.CommandContext(ctx, filepath.Join(bin, "regroup"), "up", "--state-dir", dir, "--slots", "4", "--node", "node-a", "--log-level", "warn")
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	url, err := c.url(ctx)
	if err != nil {
		c.stop()
		return nil, err
	}
	if c.conn, err = jetstream.Connect(ctx, jetstream.ConnectOptions{URL: url, Name: "bench"}); err != nil {
		c.stop()
		return nil, err
	}
	c.ports = c.conn.Ports()
	return c, nil
}

// url waits for the file that says where the broker listens.
func (c *cluster) url(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(filepath.Join(c.dir, "server.url")); err == nil && strings.HasSuffix(string(b), "\n") {
			return strings.TrimSpace(string(b)), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b, _ := os.ReadFile(filepath.Join(c.dir, "log"))
			return "", fmt.Errorf("regroup up does not come up: %s", b)
		}
	}
}

func (c *cluster) stop() {
	if c.conn != nil {
		c.conn.Close()
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	_ = c.cmd.Wait()
	_ = os.RemoveAll(c.dir)
}

// submit publishes a job of the counter example, in-process recovery, and returns its id.
func (c *cluster) submit(ctx context.Context, name string, workers events.Workers, args ...string) (events.JobID, error) {
	unlimited := 1 << 20
	e := events.Event{
		ID: fmt.Sprintf("%s-%d", name, time.Now().UnixNano()), Source: "/client/bench", Time: time.Now(),
		Body: events.JobSubmit{Spec: events.Spec{
			Name: name, Command: append([]string{filepath.Join(c.bin, "counter")}, args...), Workers: workers,
			Recovery: events.RecoveryInProcess, Failures: events.Failures{Max: &unlimited},
		}},
	}
	e.Entity = string(events.JobIDFrom(name, e.Source, e.ID))
	m, err := e.Message()
	if err != nil {
		return "", err
	}
	_, err = c.ports.Log.Publish(ctx, m)
	return events.JobID(e.Entity), err
}

func (c *cluster) stopJob(ctx context.Context, job events.JobID) error {
	e := events.Event{ID: fmt.Sprintf("stop-%s", job), Source: "/client/bench", Entity: string(job), Time: time.Now(), Body: events.JobStop{Job: job, Now: true}}
	m, err := e.Message()
	if err != nil {
		return err
	}
	_, err = c.ports.Log.Publish(ctx, m)
	return err
}
