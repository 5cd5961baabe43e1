package proc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/internal/spawn"
)

// helperThreads makes the test binary a process of several threads: "live", or "headless", whose
// first thread has ended.
const helperThreads = "PROC_TEST_THREADS"

func playThreads(how string) {
	memory := make([]byte, 64<<20)
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	for range 4 {
		go func() {
			runtime.LockOSThread()
			_ = syscall.Pause()
		}()
	}
	if how == "headless" {
		go func() {
			for !strings.Contains(statOf(os.Getpid()), ") Z ") {
				time.Sleep(time.Millisecond) // procfs has no notification
			}
			fmt.Println("ready")
		}()
		_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0) // main runs on the first thread
	}
	fmt.Println("ready")
	select {}
}

// main stays on the first thread, on which packages are initialised.
var _ = func() bool {
	if os.Getenv(helperThreads) != "" {
		runtime.LockOSThread()
	}
	return true
}()

func statOf(pid int) string {
	b, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return string(b)
}

// threads starts such a process, which is not waited for before the end of the test.
func threads(t *testing.T, how string) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperThreads+"="+how)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := spawn.Start(cmd); err != nil { // without the mark of a worker that another test starts
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := fmt.Fscanln(out, new(string)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// ended reports whether the process can be waited for.
func ended(t *testing.T, pid int) bool {
	t.Helper()
	var exit unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &exit, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil); err != nil {
		t.Fatal(err)
	}
	return exit.Signo != 0
}

// TestKilledProcessIsDyingBeforeItsEnd: long before it can be waited for, and until then. A look
// may fall on the moment in which a thread takes the signal, and the next one, on a busy machine,
// on the time after the end: it passes if that is seen once in ten times.
func TestKilledProcessIsDyingBeforeItsEnd(t *testing.T) {
	t.Parallel()
	d, err := New(Options{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"live", "headless"} {
		seen := false
		for n := 0; n < 10 && !seen; n++ {
			seen = dyingBeforeItsEnd(t, d, threads(t, how))
		}
		if !seen {
			t.Errorf("%s: not seen before the end", how)
		}
	}
}

// dyingBeforeItsEnd kills a process, and reports whether it was seen to be dying before it could be
// waited for.
func dyingBeforeItsEnd(t *testing.T, d *Driver, pid int) (seen bool) {
	t.Helper()
	at := strconv.Itoa(pid)
	if d.dying(at) {
		t.Fatalf("it lives: %s", statOf(pid))
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for !seen && !ended(t, pid) {
		seen = d.dying(at) && !ended(t, pid)
	}
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if task, _ := d.proc.Task(at); !d.dying(at) || task.Status.Signal() != syscall.SIGKILL {
		t.Errorf("at its end: status %#x, %s", task.Status, statOf(pid))
	}
	return seen
}

// TestEndOfTheFirstThreadIsNoEnd: the process lives on, though procfs shows it as a zombie.
func TestEndOfTheFirstThreadIsNoEnd(t *testing.T) {
	t.Parallel()
	d, err := New(Options{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	pid := threads(t, "headless")
	if first, _ := d.proc.Process(pid); !dying(first) {
		t.Fatalf("its first thread lives: %s", statOf(pid))
	}
	if d.dying(strconv.Itoa(pid)) {
		t.Error("it counts as dying")
	}
}

// stat writes a procfs file of a thread whose name looks like one of its own fields.
func stat(t *testing.T, dir, state string, flags, pending, code int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f := make([]string, 50)
	for i := range f {
		f[i] = "7"
	}
	f[0], f[6], f[28], f[49] = state, strconv.Itoa(flags), strconv.Itoa(pending), strconv.Itoa(code)
	if err := os.WriteFile(filepath.Join(dir, "stat"), []byte("1 (a) Z 4 4) "+strings.Join(f, " ")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestProcessIsDyingOnlyIfAllThreadsAre(t *testing.T) {
	t.Parallel()
	const other = 0x400040 // flags of every process
	for _, c := range []struct {
		name    string
		state   string // of the second thread
		flags   int
		pending int
		want    bool
	}{
		{"running", "R", other, 0, false},
		{"stopped, with another signal", "T", other, 1 << 14, false},
		{"zombie", "Z", other, 0, true},
		{"exiting", "D", other | exiting, 0, true},
		{"dumps core", "D", other | signaled, 0, true},
		{"has not seen the signal yet", "S", other, 1 << 8, true},
	} {
		proc := t.TempDir()
		d, err := New(Options{StateDir: t.TempDir(), Proc: proc})
		if err != nil {
			t.Fatal(err)
		}
		stat(t, filepath.Join(proc, "10"), "Z", other|exiting, 0, 9)
		stat(t, filepath.Join(proc, "10/task/10"), "Z", other|exiting, 0, 9)
		stat(t, filepath.Join(proc, "10/task/11"), c.state, c.flags, c.pending, 0)
		if got := d.dying("10"); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		if d.dying("12") {
			t.Error("a process that does not exist counts as dying")
		}
	}
}

// TestDyingWorkerIsReportedBeforeItsExit: the exit is reported once, when it has happened.
func TestDyingWorkerIsReportedBeforeItsExit(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	r := newRig(t, Options{Proc: proc})
	r.start("sleep", "1000")
	pid := strconv.Itoa(next[worker.ProcessStarted](r).PID)
	r.d.Examine("01NOBODY")
	for code, want := range []worker.ProcessDying{
		{Worker: r.id}, {Worker: r.id, Signal: "SIGHUP", Number: 1}, {Worker: r.id, ExitCode: 3},
	} {
		stat(t, filepath.Join(proc, pid), "R", exiting, 0, []int{0, 1, 3 << 8}[code])
		stat(t, filepath.Join(proc, pid, "task", pid), "R", exiting, 0, 0)
		until(t, "it is not examined any more", func() bool { return !r.d.find(r.id).examined.Load() })
		r.d.Examine(r.id)
		if got := next[worker.ProcessDying](r); got != want {
			t.Errorf("reported %+v, want %+v", got, want)
		}
	}
	r.d.Kill(r.id)
	if x := next[worker.ProcessExited](r); x.Signal != "SIGKILL" {
		t.Errorf("%+v", x)
	}
	r.d.Examine(r.id)
}
