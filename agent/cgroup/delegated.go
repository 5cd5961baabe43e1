package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/agent/procfs"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// vacate moves the agent, and the workers that it has started in its own group, to a group below.
// A group other than the root has either processes or controllers for groups below. The kernel
// does not always refuse both: it lets the controllers of processors and of processes be enabled,
// and then lets nothing start in a group below. A group that others are in is left as it is.
func (h *Hierarchies) vacate() error {
	if _, err := os.Stat(filepath.Join(h.V2, "cgroup.type")); errors.Is(err, fs.ErrNotExist) {
		return nil // the root
	}
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	others := fmt.Errorf("%s has other processes than the agent: give the agent a group of its own (systemd: Delegate=yes)", h.V2)
	// A process that is moved may just have started another, and one that is ending is not moved.
	last := fmt.Errorf("processes of the agent do not leave %s", h.V2)
	for until := time.Now().Add(endWithin); time.Now().Before(until); <-again.C {
		b, err := os.ReadFile(filepath.Join(h.V2, "cgroup.procs"))
		if err != nil {
			return err
		}
		procs := strings.Fields(string(b))
		if len(procs) == 0 {
			return nil
		}
		switch h.owner(procs) {
		case ofAnother:
			return others
		case ofUnknown:
			last = others
			continue
		}
		if err := h.leave(procs); err != nil {
			return err
		}
	}
	return last
}

// leave moves processes of the agent to the group below.
func (h *Hierarchies) leave(procs []string) error {
	leaf := filepath.Join(h.V2, Leaf)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, pid := range procs {
		if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte(pid), 0o600); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// owner says whose a process is.
type owner int

const (
	ofAgent   owner = iota // the agent's, or it has ended
	ofUnknown              // to be looked at again: see ownerByEnvironment
	ofAnother
)

// owner returns ofAgent if all processes are the agent's, and ofAnother if one is another's.
func (h *Hierarchies) owner(procs []string) (all owner) {
	for _, pid := range procs {
		all = max(all, h.ownerOf(pid))
	}
	return all
}

// ownerOf returns ofAgent for the agent, what it has started, directly or not, what a worker has
// started that has lost its parents, and what has ended meanwhile.
func (h *Hierarchies) ownerOf(pid string) owner {
	self, missed := strconv.Itoa(os.Getpid()), ""
	for at := pid; at != self; {
		t, found := h.proc.Task(at)
		switch {
		case found && t.Parent != "0":
			at = t.Parent
		case found || at == "0" || at == missed: // it is outside of the agent's PID namespace, as 0 says too
			return h.ownerByEnvironment(pid)
		case at == pid:
			return ofAgent
		default: // the parent may have ended: read pid's new parent, once
			at, missed = pid, at
		}
	}
	return ofAgent
}

// ownerByEnvironment returns ofAgent for a process that has the environment of a worker, and
// ofUnknown for one whose environment is empty, as it is during execve.
func (h *Hierarchies) ownerByEnvironment(pid string) owner {
	b, err := h.proc.Environ(pid)
	_, found := procfs.Variable(b, workerprotocol.EnvIncarnation)
	switch {
	case found, errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return ofAgent
	case err == nil && len(b) == 0:
		return ofUnknown
	}
	return ofAnother
}
