package proc

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// TestRecordIsWrittenBeforeItsProcessStarts: an agent may be killed as soon as its worker runs. The
// record is written into a pipe, which blocks until the test reads it.
func TestRecordIsWrittenBeforeItsProcessStarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newRig(t, Options{StateDir: dir})
	file := r.d.file(own(t)) + ".new"
	if err := os.MkdirAll(r.d.dir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	r.start("sleep", "1000")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var first record
	if err := json.Unmarshal(b, &first); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	if first.PID != 0 || first.Mark == 0 || first.Incarnation != own(t) {
		t.Errorf("the first record is %+v, want the mark of a process that does not run yet", first)
	}
	pid := next[worker.ProcessStarted](r).PID
	if got := r.d.proc.MessageQueueLimit(pid); got != first.Mark {
		t.Errorf("the process has the mark %d, its record says %d", got, first.Mark)
	}
	r.d.Kill(own(t))
	next[worker.ProcessExited](r)
}

// TestRecordOfAFailedStartIsRemoved: the program's interpreter does not exist, which only its start
// shows.
func TestRecordOfAFailedStartIsRemoved(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/does/not/exist\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Options{})
	r.start(program)
	next[worker.ProcessFailedToStart](r)
	if left, err := os.ReadDir(r.d.dir()); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
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
		m := spawn.Mark()
		if err := spawn.StartMarked(cmd, m); err != nil {
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
	m := spawn.Mark()
	if err := spawn.StartMarked(cmd, m); err != nil {
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
