package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/agent/procfs"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// TestVersion2: what is written where all controllers are in version 2, in a directory that stands
// for it.
func TestVersion2(t *testing.T) {
	t.Parallel()
	root, proc := t.TempDir(), t.TempDir()
	own := filepath.Join(root, "system.slice", "agent")
	write := func(path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(root, "cgroup.controllers"), "cpuset cpu io memory pids")
	write(filepath.Join(own, "cgroup.controllers"), "cpu memory pids")
	write(filepath.Join(own, "cgroup.type"), "domain")
	write(filepath.Join(own, "cgroup.procs"), "")
	write(filepath.Join(own, "cgroup.subtree_control"), "memory")
	write(filepath.Join(proc, "self", "cgroup"), "0::/system.slice/agent\n")
	h := Find(root, proc)
	if h.V2 != own {
		t.Fatalf("the agent's group is %s", h.V2)
	}
	g, err := h.Create(spec.ProcessLimits{Memory: 3 << 30, PIDs: 50, CPUs: 1.5})
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		filepath.Join(own, "cgroup.subtree_control"): "+pids +cpu", filepath.Join(g.v2, "memory.max"): "3221225472",
		filepath.Join(g.v2, "memory.swap.max"): "0", filepath.Join(g.v2, "memory.oom.group"): "1", filepath.Join(g.v2, "pids.max"): "50",
		filepath.Join(g.v2, "cpu.max"): "150000 100000",
	} {
		if b, err := os.ReadFile(file); err != nil || string(b) != want {
			t.Errorf("%s holds %q, %v, want %q", file, b, err, want)
		}
	}
	write(filepath.Join(g.v2, "memory.events"), "oom 2\noom_kill 2\n")
	if !g.LimitsMemory() || g.OOMKills() != 2 {
		t.Errorf("%d kills", g.OOMKills())
	}
}

// TestProcessThatBecomesAnotherProgramIsLookedAtAgain: while it does, its environment is empty.
func TestProcessThatBecomesAnotherProgramIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ environment, refused string }{
		"a worker's": {"A=1\x00" + workerprotocol.EnvIncarnation + "=01X\x00", ""},
		"another's":  {"A=1\x00", "has other processes than the agent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, proc := Hierarchies{V2: t.TempDir()}, t.TempDir()
			h.proc = procfs.Dir(proc)
			procs, environ := filepath.Join(h.V2, "cgroup.procs"), filepath.Join(proc, "10/environ")
			write := func(file, content string) {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Error(err)
				}
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Error(err)
				}
			}
			write(filepath.Join(h.V2, "cgroup.type"), "domain")
			write(procs, "10\n")
			write(filepath.Join(proc, "10/stat"), "10 (sleep) S 1 10 10 0")
			write(filepath.Join(proc, "1/stat"), "1 (init) S 0 1 1 0")
			if err := unix.Mkfifo(environ, 0o600); err != nil {
				t.Fatal(err)
			}
			looked := make(chan error, 1)
			go func() { looked <- h.vacate() }()
			first, err := os.OpenFile(environ, os.O_WRONLY, 0) // waits for the reader
			if err != nil {
				t.Fatal(err)
			}
			write(environ+".new", c.environment)
			if err := errors.Join(os.Rename(environ+".new", environ), first.Close()); err != nil {
				t.Fatal(err)
			}
			if c.refused == "" { // the kernel moves what is written
				moved := func() bool {
					b, _ := os.ReadFile(filepath.Join(h.V2, Leaf, "cgroup.procs"))
					return string(b) == "10" || len(looked) > 0
				}
				// Polled: what is written into a file of the fake hierarchy has no notification.
				for end := time.Now().Add(time.Minute); !moved(); time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal("the process is not moved within a minute")
					}
				}
				write(procs, "")
			}
			if err := <-looked; (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%v, want %q", err, c.refused)
			}
		})
	}
}
