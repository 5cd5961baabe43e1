package demo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/internal/spawn"
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
	cmd.Env = append(os.Environ(), "REGROUP_SECRET="+n.secret, "REGROUP_AUTH=", "REGROUP_CREDS=", "REGROUP_AGENT_JOIN=")
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

// siblingPath returns the path of a program in the directory of this executable.
func siblingPath(name string) (string, error) {
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
