package proc

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/spawn"
)

// away starts a process outside the group, session, environment and output of its worker, and waits
// until it runs.
const away = `setsid env -i sleep 1000 </dev/null >/dev/null 2>&1 & echo $!; while [ "$(cat /proc/$!/comm)" != sleep ]; do :; done; `

func TestDetachedChildEndsWithItsWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.start("sh", "-c", away+"exit 3")
	next[worker.ProcessStarted](r)
	pid := pidLine(t, r)
	next[worker.ProcessExited](r)
	until(t, "it has ended", func() bool { return !runs(pid) })
}

func TestDetachedChildIsFencedAfterItsAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, pid := agent(t, dir, away+"wait")
	d, err := New(Options{StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "it has left", func() bool {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		return runs(pid) && len(b) == 0
	})
	until(t, "the file is written", func() bool { _, err := os.Stat(d.file(own(t))); return err == nil })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if !runs(pid) {
		t.Fatal("nothing was left to be found")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if found, err := d.Fence(ctx); err != nil || len(found) != 1 {
		t.Errorf("found %+v, %v", found, err)
	}
	until(t, "it has ended", func() bool { return !runs(pid) })
}

// TestMarksAreTheWorkersOwn: two workers have different marks, their children have theirs, and
// other processes have neither.
func TestMarksAreTheWorkersOwn(t *testing.T) {
	d, err := New(Options{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	before := d.proc.MessageQueueLimit(os.Getpid())
	seen := map[uint64]bool{before: true}
	for range 3 {
		cmd := exec.Command("sleep", "1000")
		m, err := spawn.StartMarked(cmd)
		if err != nil {
			t.Fatal(err)
		}
		if m == 0 || seen[m] || d.proc.MessageQueueLimit(cmd.Process.Pid) != m {
			t.Errorf("marked %d, reads %d, seen before %v", m, d.proc.MessageQueueLimit(cmd.Process.Pid), seen[m])
		}
		seen[m] = true
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if d.proc.MessageQueueLimit(os.Getpid()) != before {
		t.Error("this process keeps a mark")
	}
}

func TestWorkerIsNotMistakenForAnotherWithItsMark(t *testing.T) {
	t.Parallel()
	d, err := New(Options{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1000")
	cmd.Env = []string{worker.EnvIncarnation + "=" + string(own(t))}
	m, err := spawn.StartMarked(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	// The kernel shows the environment shortly after Start has returned.
	until(t, "a worker is known by its environment", func() bool {
		return d.isOneOf(cmd.Process.Pid, processSet{ids: []ident.Incarnation{own(t)}})
	})
	if d.isOneOf(cmd.Process.Pid, processSet{[]ident.Incarnation{"01OTHER"}, []uint64{m}}) {
		t.Error("a worker ends with another that has the same mark")
	}
}
