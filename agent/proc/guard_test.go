package proc

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/ident"
)

// guardTest is a guard of the test's own driver; the test writes what an agent writes.
type guardTest struct {
	t     *testing.T
	agent *os.File // the agent's end of the pipe
	ended chan error
}

func guardOf(t *testing.T, d *Driver, pid int) *guardTest {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	g := &guardTest{t: t, agent: write, ended: make(chan error, 1)}
	other, err := New(Options{StateDir: d.opt.StateDir})
	if err != nil {
		t.Fatal(err)
	}
	go func() { g.ended <- other.Guard(context.Background(), read, pid) }()
	t.Cleanup(func() { _ = write.Close(); <-g.ended; _ = read.Close() })
	return g
}

// says writes a line: until when processes may run from now on.
func (g *guardTest) says(restart, inPlace time.Duration) {
	g.t.Helper()
	boot, err := sinceBoot()
	if err != nil {
		g.t.Fatal(err)
	}
	b, err := json.Marshal(guarded{Restart: int64(boot + restart), InPlace: int64(boot + inPlace)})
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := g.agent.Write(append(b, '\n')); err != nil {
		g.t.Fatal(err)
	}
}

// sleeps starts a worker that does nothing.
func sleeps(t *testing.T, dir string, name string, g ident.Generation) *rig {
	t.Helper()
	r := newRig(t, Options{StateDir: dir})
	r.id = ident.Incarnation(name) + "-" + r.id
	r.startWith(worker.StartProcess{
		Worker: r.id, Generation: g, Command: []string{"sleep", "1000"}, Env: map[string]string{"REGROUP_INCARNATION": string(r.id)},
	})
	next[worker.ProcessStarted](r)
	until(t, "its record is there", func() bool { _, err := os.Stat(r.d.file(r.id)); return err == nil })
	return r
}

func (r *rig) wantKilled() {
	r.t.Helper()
	if x := next[worker.ProcessExited](r); x.Signal != "SIGKILL" {
		r.t.Errorf("%s: %+v", r.id, x)
	}
}

func (r *rig) wantAlive() {
	r.t.Helper()
	select {
	case in := <-r.in:
		r.t.Errorf("%s has ended: %+v", r.id, in)
	default:
	}
}

// TestTheGuardEndsWhatHasNoLease: the processes of an agent that says nothing any more. Those that
// recover in place live on for longer.
func TestTheGuardEndsWhatHasNoLease(t *testing.T) {
	dir := t.TempDir()
	restart, inPlace := sleeps(t, dir, "restart", 1), sleeps(t, dir, "in-place", 0)
	g := guardOf(t, restart.d, os.Getpid())
	g.says(time.Hour, time.Hour)
	g.says(0, time.Hour)
	restart.wantKilled()
	inPlace.wantAlive()
	g.says(0, 0)
	inPlace.wantKilled()
}

// TestTheGuardEndsWhatItsAgentHasLeft, and nothing of another agent with the same folder.
func TestTheGuardEndsWhatItsAgentHasLeft(t *testing.T) {
	r := sleeps(t, t.TempDir(), "left", 1)
	other := guardOf(t, r.d, 1)
	_ = other.agent.Close()
	if err := <-other.ended; err != nil {
		t.Fatal(err)
	}
	other.ended <- nil
	r.wantAlive()
	g := guardOf(t, r.d, os.Getpid())
	_ = g.agent.Close()
	r.wantKilled()
}

// TestADeadGuardIsReplaced: the next one gets the newest times first.
func TestADeadGuardIsReplaced(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, Options{StateDir: dir, Guard: func(dir string) *exec.Cmd {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), helperGuard+"="+dir, fmt.Sprintf("%s=%d", helperGuardOf, os.Getpid()))
		return cmd
	}})
	r.startWith(worker.StartProcess{
		Worker: r.id, Generation: 1, Command: []string{"sleep", "1000"}, Env: map[string]string{"REGROUP_INCARNATION": string(r.id)},
	})
	next[worker.ProcessStarted](r)
	guard := func(not int) (pid int) {
		until(t, "a guard runs", func() bool {
			b, err := os.ReadFile(filepath.Join(dir, "guard"))
			pid, _ = strconv.Atoi(string(b))
			return err == nil && pid != 0 && pid != not
		})
		return pid
	}
	first := guard(0)
	r.d.Lease(time.Now().Add(time.Hour), time.Now().Add(time.Hour))
	_ = syscall.Kill(first, syscall.SIGKILL)
	guard(first)
	r.wantAlive()
	r.d.Lease(time.Now(), time.Now().Add(time.Hour))
	r.wantKilled()
}

// helperGuard makes the test binary the guard of a folder, helperGuardOf of an agent.
const helperGuard, helperGuardOf = "PROC_TEST_GUARD", "PROC_TEST_GUARD_OF"

func playGuard(dir string) {
	d, err := New(Options{StateDir: dir})
	if err != nil {
		panic(err)
	}
	pid, err := strconv.Atoi(os.Getenv(helperGuardOf))
	if err != nil {
		panic(err)
	}
	if err := syscall.SetNonblock(0, true); err != nil {
		panic(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "guard"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		panic(err)
	}
	if err := d.Guard(context.Background(), os.NewFile(0, "agent"), pid); err != nil {
		panic(err)
	}
}
