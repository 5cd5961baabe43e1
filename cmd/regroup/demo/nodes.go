package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/cmd/regroup/internal/client"
	"github.com/regroup-io/regroup/events"
)

// nodes are agents as processes of their own, so that they can be killed as nodes die.
type nodes struct {
	url string
	dir string

	mu      sync.Mutex
	running map[string]*exec.Cmd
}

func newNodes(url, dir string) *nodes {
	return &nodes{url: url, dir: dir, running: map[string]*exec.Cmd{}}
}

func (n *nodes) start(name string, slots int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(n.dir, name+".log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(self, "agent", "--server", n.url, "--state-dir", n.dir, "--node", name, "--slots", fmt.Sprint(slots), "--advertise", "127.0.0.1")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the demo; it ends its nodes itself
	if err := cmd.Start(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running[name] = cmd
	return nil
}

// kill ends a node as a power cut would.
func (n *nodes) kill(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	cmd := n.running[name]
	if cmd == nil {
		return fmt.Errorf("%s does not run", name)
	}
	delete(n.running, name)
	err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait() // it was killed
	return err
}

// stop ends all nodes and waits for them.
func (n *nodes) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, cmd := range n.running {
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	for name, cmd := range n.running {
		hard := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // its exit code says nothing that its log does not
		hard.Stop()
		delete(n.running, name)
	}
}

// awaitNodes waits until discovery shows the nodes as ready.
func awaitNodes(ctx context.Context, c *client.Client, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		all, err := c.Nodes(ctx)
		if err != nil {
			return err
		}
		ready := 0
		for _, v := range all {
			if v.State == events.NodeReady && slices.Contains(names, string(v.Node)) {
				ready++
			}
		}
		if ready == len(names) {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d nodes came up: %w", ready, len(names), context.Cause(ctx))
		}
	}
}

// beside returns the path of a program that was built beside this one.
func beside(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	at := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(at); err != nil {
		return "", fmt.Errorf("the example worker %s is not beside %s: build it with make build", name, self)
	}
	return at, nil
}
