package run

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/serve"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/internal/escape"
	"github.com/regroup-io/regroup/internal/spawn"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/cluster"
)

// nodes are agents in separate processes, so that killing one simulates the loss of a node.
type nodes struct {
	url    string
	secret string // of the server
	dir    string

	mu      sync.Mutex
	running map[string]*exec.Cmd
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
	// What is meant for one process would be for each of them: they cannot share the address of a
	// health check, which an image sets.
	cmd.Env = append(os.Environ(), "REGROUP_SECRET="+n.secret, "REGROUP_AUTH=", "REGROUP_CREDS=", "REGROUP_AGENT_JOIN=", "REGROUP_HEALTH=")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is handled by the demo, which ends its nodes itself
	if err := spawn.Start(cmd); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running[name] = cmd
	return nil
}

// lastWords returns the last line that each node has logged.
func (n *nodes) lastWords() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(n.running)) {
		b, err := os.ReadFile(filepath.Join(n.dir, name+".log"))
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		if err == nil {
			all = append(all, name+": "+escape.Line(lines[len(lines)-1]))
		}
	}
	return strings.Join(all, "\n")
}

// kill ends a node's agent with SIGKILL. Its workers die with it.
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

func (n *nodes) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, cmd := range n.running {
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	for name, cmd := range n.running {
		hard := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // its log has the reason of a failure
		hard.Stop()
		delete(n.running, name)
	}
}

// forgetWithin bounds the wait for discovery to remove the nodes.
const forgetWithin = 10 * time.Second

// forget removes the nodes from discovery's list, where those of others stay for a day: all of them
// have ended, and come back never.
func forget(ctx context.Context, l *serve.Local) error {
	ctx, cancel := context.WithTimeout(ctx, forgetWithin)
	defer cancel()
	d := l.Discovery
	d.KeepLost = time.Nanosecond
	c := cluster.New(l.Process.Ports, cluster.RunSource)
	return boot.Both(ctx, func(ctx context.Context) error {
		return serve.Services(ctx, l.Process, d, events.ServiceDiscovery)
	}, func(ctx context.Context) error {
		for {
			nodes, err := c.Nodes(ctx)
			if err != nil || len(nodes) == 0 {
				return err
			}
			if !wait.Sleep(ctx, 20*time.Millisecond) {
				return context.Cause(ctx)
			}
		}
	})
}

// workerPath returns the path of an example worker: in the directory of this executable, or where a
// wheel has it beside that, in ../libexec/regroup.
func workerPath(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(self)
	for _, at := range []string{filepath.Join(dir, name), filepath.Join(dir, "..", "libexec", "regroup", name)} {
		if _, err := os.Stat(at); err == nil {
			return filepath.Clean(at), nil
		}
	}
	return "", fmt.Errorf("the example worker %s is neither in %s nor in ../libexec/regroup of it: build it with make build, or install the wheel", name, dir)
}
