package proc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/spawn"
)

// helperDelegated makes the test binary an agent that starts a worker without limits, then one with
// these, and prints the lines of the second, or why it did not start.
const helperDelegated = "PROC_TEST_DELEGATED"

func playDelegated(limits string) {
	dir, err := os.MkdirTemp("", "regroup-test-")
	must(err)
	defer func() { must(os.RemoveAll(dir)) }()
	d, err := New(Options{StateDir: dir})
	must(err)
	var l spec.ProcessLimits
	must(json.Unmarshal([]byte(limits), &l))
	ctx, cancel := context.WithCancel(context.Background())
	done, in := make(chan error, 1), make(chan worker.Input, 8)
	go func() { done <- d.Run(ctx) }()
	start := func(id ident.Incarnation, l spec.ProcessLimits, script string) worker.Input {
		d.Start(worker.StartProcess{
			Worker: id, Command: []string{"sh", "-c", script}, Env: map[string]string{worker.EnvIncarnation: string(id)}, Limits: l,
		}, func(i worker.Input) { in <- i }, func(string, []output.Line) {})
		return <-in
	}
	id := fmt.Sprintf("01DELEGATED-%d", os.Getpid())
	if first, ok := start(ident.Incarnation(id+"-1"), spec.ProcessLimits{}, "setsid sh -c 'sleep 1000 &'; sleep 1000").(worker.ProcessStarted); !ok {
		panic(fmt.Sprintf("%+v", first))
	}
	switch second := start(ident.Incarnation(id+"-2"), l, "cat /proc/self/cgroup").(type) {
	case worker.ProcessStarted:
		fmt.Println(strings.Join((<-in).(worker.ProcessExited).Lines, "\n"))
	case worker.ProcessFailedToStart:
		fmt.Println(second.Detail)
	}
	cancel()
	must(<-done)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// TestAgentInADelegatedGroup: it leaves its group with the workers that it has started there, and
// enforces each limit. Where it is not alone it refuses, and moves nobody.
func TestAgentInADelegatedGroup(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	h := findHierarchies("/sys/fs/cgroup", "/proc")
	for _, controller := range []string{"memory", "pids", "cpu"} {
		if !slices.Contains(h.offers, controller) {
			t.Logf("cgroup v2 has no controller %s here: what holds of a delegated group is not proved", controller)
			return
		}
	}
	for name, l := range map[string]spec.ProcessLimits{
		"memory": {Memory: 64 << 20}, "pids": {PIDs: 50}, "cpus": {CPUs: 0.5}, "all": {Memory: 64 << 20, PIDs: 50, CPUs: 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := h.delegated(t)
			if got := asAgent(t, g, l); !strings.Contains(got, "/"+filepath.Base(g.v2)+"/"+groupPrefix) {
				t.Errorf("the worker says %q", got)
			}
			if _, err := os.Stat(filepath.Join(g.v2, agentLeaf)); err != nil {
				t.Error(err)
			}
		})
		t.Run(name+", with another", func(t *testing.T) {
			t.Parallel()
			g := h.delegated(t)
			other := exec.Command("sleep", "1000")
			startInside(t, g, other)
			defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
			if got := asAgent(t, g, l); !strings.Contains(got, "has other processes than the agent") {
				t.Errorf("the worker says %q", got)
			}
			if _, err := os.Stat(filepath.Join(g.v2, agentLeaf)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("somebody was moved: %v", err)
			}
		})
	}
}

// delegated makes a group that has all controllers, for the time of the test.
func (h *hierarchies) delegated(t *testing.T) *group {
	t.Helper()
	g, err := h.create(spec.ProcessLimits{Memory: 512 << 20, PIDs: 2000, CPUs: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		leaf := filepath.Join(g.v2, agentLeaf)
		endGroups([]string{leaf}, func() { killIn(leaf) })
		g.end()
		noGroupLeft(t, g.dirs())
	})
	return g
}

func startInside(t *testing.T, g *group, cmd *exec.Cmd) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err := g.start(cmd, func() error { return spawn.Start(cmd) }); err != nil {
		t.Fatal(err)
	}
}

// asAgent runs this binary as an agent in a group, and returns what it prints.
func asAgent(t *testing.T, g *group, l spec.ProcessLimits) string {
	t.Helper()
	limits, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), helperDelegated+"="+string(limits)), &out, os.Stderr
	startInside(t, g, cmd)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestProcessThatBecomesAnotherProgramIsLookedAtAgain: while it does, its environment is empty.
func TestProcessThatBecomesAnotherProgramIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ environment, refused string }{
		"a worker's": {"A=1\x00" + worker.EnvIncarnation + "=01X\x00", ""},
		"another's":  {"A=1\x00", "has other processes than the agent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := hierarchies{v2: t.TempDir(), proc: t.TempDir()}
			procs, environ := filepath.Join(h.v2, "cgroup.procs"), filepath.Join(h.proc, "10/environ")
			write := func(file, content string) {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Error(err)
				}
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Error(err)
				}
			}
			write(filepath.Join(h.v2, "cgroup.type"), "domain")
			write(procs, "10\n")
			write(filepath.Join(h.proc, "10/stat"), "10 (sleep) S 1 10 10 0")
			write(filepath.Join(h.proc, "1/stat"), "1 (init) S 0 1 1 0")
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
				until(t, "the process is moved", func() bool {
					b, _ := os.ReadFile(filepath.Join(h.v2, agentLeaf, "cgroup.procs"))
					return string(b) == "10" || len(looked) > 0
				})
				write(procs, "")
			}
			if err := <-looked; (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%v, want %q", err, c.refused)
			}
		})
	}
}
