package proc

import (
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
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/spawn"
)

func (r *rig) startLimited(l spec.ProcessLimits, script string) {
	r.startWith(worker.StartProcess{
		Worker: r.id, Command: []string{"sh", "-c", script}, Env: map[string]string{"REGROUP_INCARNATION": string(r.id)}, Limits: l,
	})
}

// noGroupLeft fails if the group of a worker is still there.
func noGroupLeft(t *testing.T, dirs []string) {
	t.Helper()
	until(t, "the group is removed", func() bool {
		return !slices.ContainsFunc(dirs, func(dir string) bool { _, err := os.Stat(dir); return err == nil })
	})
}

// groupOf returns the directories of a running worker's group.
func (r *rig) groupOf() []string {
	p := r.d.find(r.id)
	if p == nil || p.group == nil {
		r.t.Fatal("the worker has no group")
	}
	return p.group.Dirs()
}

// TestMemoryLimit: the worker that exceeds it, or whose child does, ends for lack of memory; one
// that is killed by another process does not. Version 2 kills all of a worker.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	type end struct {
		oom    bool
		signal string
	}
	whole := end{true, "SIGKILL"}
	for script, want := range map[string]struct{ v1, v2 end }{
		"exec tail /dev/zero":           {whole, whole}, // it keeps all of a line that never ends
		"tail /dev/zero; exit 3":        {end{true, ""}, whole},
		"tail /dev/zero; exit 0":        {end{false, ""}, whole},
		"kill -KILL $$":                 {end{false, "SIGKILL"}, end{false, "SIGKILL"}},
		"head -c 1m /dev/zero | wc -c":  {},
		"exec tail /dev/zero # another": {whole, whole},
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Options{})
			r.startLimited(spec.ProcessLimits{Memory: 64 << 20}, script)
			next[worker.ProcessStarted](r)
			must := want.v1
			if slices.Contains(r.d.groups.Offers, "memory") {
				must = want.v2
			}
			if x := next[worker.ProcessExited](r); x.OOM != must.oom || x.Signal != must.signal {
				t.Errorf("%+v, want %+v", x, must)
			}
		})
	}
}

// TestProcessAndProcessorLimits: of all that the worker starts.
func TestProcessAndProcessorLimits(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	r := newRig(t, Options{})
	gate := filepath.Join(t.TempDir(), "gate") // until the test writes there, the worker has its group
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	r.startLimited(spec.ProcessLimits{PIDs: 5, CPUs: 0.5}, "read line < "+gate+`; for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; sleep 1000`)
	next[worker.ProcessStarted](r)
	dirs := r.groupOf()
	var limits []string
	for _, dir := range dirs {
		for _, file := range []string{"pids.max", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.max"} {
			if b, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
				limits = append(limits, strings.TrimSpace(string(b)))
			}
		}
	}
	slices.Sort(limits)
	if got := strings.Join(limits, ","); got != "100000,5,50000" && got != "5,50000 100000" {
		t.Errorf("limits %s", got)
	}
	if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	x := next[worker.ProcessExited](r)
	if x.ExitCode == 0 || !strings.Contains(strings.Join(x.Lines, " "), "fork") {
		t.Errorf("%+v, want an error of fork", x)
	}
	noGroupLeft(t, dirs)
}

// TestABusyWorkerWaits: for the rest of a period, when it has had its share.
func TestABusyWorkerWaits(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	r := newRig(t, Options{})
	r.startLimited(spec.ProcessLimits{CPUs: 0.1}, "while :; do :; done")
	next[worker.ProcessStarted](r)
	dirs := r.groupOf()
	until(t, "the worker waits", func() bool {
		return slices.ContainsFunc(dirs, func(dir string) bool {
			b, _ := os.ReadFile(filepath.Join(dir, "cpu.stat"))
			_, n, found := strings.Cut(string(b), "nr_throttled ")
			return found && !strings.HasPrefix(n, "0\n")
		})
	})
	r.d.Kill(r.id)
	next[worker.ProcessExited](r)
}

// TestNothingEscapesAGroup: a daemon that has left its group and session, its environment and its
// mark ends with the worker.
func TestNothingEscapesAGroup(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	for _, end := range []string{"exit", "kill"} {
		r := newRig(t, Options{})
		r.id += ident.Incarnation("-" + end) // or the sweep after the first worker would find the second
		script := `echo $(env -i PATH="$PATH" setsid prlimit --msgqueue=200000 sh -c 'setsid sh -c "echo \$\$; exec sleep 1000 > /dev/null 2>&1" &'); `
		if end == "kill" {
			script += "sleep 1000"
		}
		r.startLimited(spec.ProcessLimits{PIDs: 100}, script)
		next[worker.ProcessStarted](r)
		pid := pidLine(t, r)
		if end == "kill" {
			r.d.Kill(r.id)
		}
		next[worker.ProcessExited](r)
		until(t, "the daemon ends", func() bool { return !runs(pid) })
	}
}

// TestTheNextWorkerIsInNoGroup: the thread that starts workers has come back.
func TestTheNextWorkerIsInNoGroup(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	r := newRig(t, Options{})
	r.startLimited(spec.ProcessLimits{Memory: 64 << 20, PIDs: 100, CPUs: 1}, "cat /proc/self/cgroup")
	next[worker.ProcessStarted](r)
	next[worker.ProcessExited](r)
	inside := len(r.output())
	grouped := func(lines []string) bool { // the agent's own group is no worker's
		return strings.Contains(strings.ReplaceAll(strings.Join(lines, " "), cgroup.Leaf, ""), cgroup.Prefix)
	}
	if !grouped(r.output()) {
		t.Errorf("the worker with limits is in %s", r.output())
	}
	r.id += "-next"
	r.start("cat", "/proc/self/cgroup")
	next[worker.ProcessStarted](r)
	next[worker.ProcessExited](r)
	if text := r.output()[inside:]; grouped(text) {
		t.Errorf("the next worker is in %s", text)
	}
}

// TestLimitsThatCannotBeEnforced: the worker does not start, and the error names the limit.
func TestLimitsThatCannotBeEnforced(t *testing.T) {
	t.Parallel()
	for field, l := range map[string]spec.ProcessLimits{"memory": {Memory: 1 << 30}, "pids": {PIDs: 7}, "cpus": {CPUs: 1}} {
		r := newRig(t, Options{CGroups: t.TempDir()})
		r.startLimited(l, "exit 0")
		if x := next[worker.ProcessFailedToStart](r); x.ExitCode != 126 || !strings.HasPrefix(x.Detail, "processes.limits."+field+": this node cannot limit it: ") {
			t.Errorf("%s: %+v", field, x)
		}
	}
}

// TestLeftGroupsAreEnded: those of an agent that was killed. A record cannot name anything else.
func TestLeftGroupsAreEnded(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	r := newRig(t, Options{})
	g, err := r.d.groups.Create(spec.ProcessLimits{PIDs: 10})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = attributes(nil)
	cmd.SysProcAttr.Pdeathsig = 0
	started := make(chan error)
	r.d.spawn <- func() { started <- confinement{group: g}.start(cmd, spawn.Mark()) }
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), cgroup.Prefix+"a")
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	r.d.groups.EndLeft(append(g.Dirs(), outside, "/sys/fs/cgroup/../"+cgroup.Prefix+"b"))
	if err := cmd.Wait(); err == nil {
		t.Error("the process was not killed")
	}
	noGroupLeft(t, g.Dirs())
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("a directory that is no control group was removed: %v", err)
	}
}

// TestVersion2Kills: the real hierarchy, where it is mounted beside version 1 or alone.
func TestVersion2Kills(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	h := cgroup.Find("/sys/fs/cgroup", "/proc")
	if h.V2 == "" {
		t.Log("cgroup v2 is not mounted here: what holds of it is not proved")
		return
	}
	h.V1 = nil
	r := newRig(t, Options{})
	r.d.groups = h
	r.startWith(worker.StartProcess{
		Worker: r.id, Command: []string{"sh", "-c", `echo $(env -i PATH="$PATH" setsid prlimit --msgqueue=200000 sh -c 'echo $$; exec sleep 1000 > /dev/null 2>&1' &)`},
		Env: map[string]string{"REGROUP_INCARNATION": string(r.id)}, Account: stranger,
	})
	next[worker.ProcessStarted](r)
	next[worker.ProcessExited](r)
	pid := pidLine(t, r)
	until(t, "the daemon ends", func() bool { return !runs(pid) })
}
