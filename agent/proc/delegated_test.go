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

	"github.com/regroup-io/regroup/agent/cgroup"
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
	h := cgroup.Find("/sys/fs/cgroup", "/proc")
	for _, controller := range []string{"memory", "pids", "cpu"} {
		if !slices.Contains(h.Offers, controller) {
			t.Logf("cgroup v2 has no controller %s here: what holds of a delegated group is not proved", controller)
			return
		}
	}
	for name, l := range map[string]spec.ProcessLimits{
		"memory": {Memory: 64 << 20}, "pids": {PIDs: 50}, "cpus": {CPUs: 0.5}, "all": {Memory: 64 << 20, PIDs: 50, CPUs: 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := delegated(t, h)
			if got := asAgent(t, g, l); !strings.Contains(got, "/"+filepath.Base(g.Dirs()[0])+"/"+cgroup.Prefix) {
				t.Errorf("the worker says %q", got)
			}
			if _, err := os.Stat(filepath.Join(g.Dirs()[0], cgroup.Leaf)); err != nil {
				t.Error(err)
			}
		})
		t.Run(name+", with another", func(t *testing.T) {
			t.Parallel()
			g := delegated(t, h)
			other := exec.Command("sleep", "1000")
			startInside(t, g, other)
			defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
			if got := asAgent(t, g, l); !strings.Contains(got, "has other processes than the agent") {
				t.Errorf("the worker says %q", got)
			}
			if _, err := os.Stat(filepath.Join(g.Dirs()[0], cgroup.Leaf)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a process was moved: %v", err)
			}
		})
	}
}

// delegated makes a group that has all controllers, for the time of the test.
func delegated(t *testing.T, h cgroup.Hierarchies) *cgroup.Group {
	t.Helper()
	g, err := h.Create(spec.ProcessLimits{Memory: 512 << 20, PIDs: 2000, CPUs: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		leaf := filepath.Join(g.Dirs()[0], cgroup.Leaf)
		g.Kill()
		until(t, "the group of the agent is removed", func() bool { err := os.Remove(leaf); return err == nil || errors.Is(err, fs.ErrNotExist) })
		g.End()
		noGroupLeft(t, g.Dirs())
	})
	return g
}

func startInside(t *testing.T, g *cgroup.Group, cmd *exec.Cmd) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err := g.Start(cmd.SysProcAttr, func() error { return spawn.Start(cmd) }); err != nil {
		t.Fatal(err)
	}
}

// asAgent runs this binary as an agent in a group, and returns what it prints.
func asAgent(t *testing.T, g *cgroup.Group, l spec.ProcessLimits) string {
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
