package local

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// started is a command that runs in the background.
type started struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  string // file of its stdout and stderr
	done chan struct{}
}

// begin starts the binary with the state directory of dir; it is killed with the test.
func begin(t *testing.T, dir string, args ...string) *started {
	t.Helper()
	return beginIn(t, dir, dir, nil, args...)
}

// beginIn is begin in a working directory, with further variables.
func beginIn(t *testing.T, dir, work string, env []string, args ...string) *started {
	t.Helper()
	cmd := exec.Command(bin("regroup"), withState(dir, args)...)
	cmd.Dir = work
	return beginCommand(t, dir, cmd, env...)
}

// beginCommand starts a command whose output is in a file of dir; it is killed with the test.
func beginCommand(t *testing.T, dir string, cmd *exec.Cmd, env ...string) *started {
	t.Helper()
	log, err := os.CreateTemp(dir, "out-")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s := &started{t: t, cmd: cmd, out: log.Name(), done: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.Env = append(append(os.Environ(), "NO_COLOR=1", "REGROUP_TIMEOUT="+(2*atOnce).String()), env...)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.done)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.done
		if t.Failed() {
			t.Logf("--- %v ---\n%s", cmd.Args, s.printed())
		}
	})
	return s
}

func withState(dir string, args []string) []string {
	return append(args[:1:1], append([]string{"--state-dir", filepath.Join(dir, "state")}, args[1:]...)...)
}

func (s *started) printed() string {
	b, err := os.ReadFile(s.out)
	if err != nil {
		s.t.Error(err)
	}
	return string(b)
}

func (s *started) prints(text string) {
	s.t.Helper()
	eventually(s.t, patience, func() (bool, string) {
		return strings.Contains(s.printed(), text), "it has not said " + text + ":\n" + s.printed()
	})
}

// ends waits for the end and returns the exit code, -1 after a signal.
func (s *started) ends(limit time.Duration) int {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(limit):
		s.t.Fatalf("%v does not end within %s:\n%s", s.cmd.Args, limit, s.printed())
	}
	return s.cmd.ProcessState.ExitCode()
}

func (s *started) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// pids waits until a worker has written process ids into a file, and returns those processes.
func pids(t *testing.T, file string, n int) []process {
	t.Helper()
	var all []process
	eventually(t, patience, func() (bool, string) {
		b, _ := os.ReadFile(file)
		f := strings.Fields(string(b))
		if len(f) != n {
			return false, file + " has not been written"
		}
		all = nil
		for _, s := range f {
			all = append(all, processOf(atoi(s)))
		}
		return true, ""
	})
	return all
}

// atOnce bounds a command that has nothing to wait for: one that waits ends later, see runLocal.
const atOnce = 30 * time.Second

// until is a shell command that prints ready and ends when the file exists.
func until(file string) []string {
	return []string{"--", "sh", "-c", "echo ready; until test -e " + file + "; do sleep 0.05; done"}
}

func touch(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestConcurrentRuns starts three runs at once. One ends, one is stopped with Ctrl-C, one is
// killed; a fourth starts meanwhile and continues. Other commands can list and query all of them.
func TestConcurrentRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name+".end") }
	runs := map[string]*started{}
	for _, name := range []string{"ends", "ctrl-c", "killed"} {
		runs[name] = begin(t, dir, append([]string{"run", "--name", name, "--workers", "2"}, until(file(name))...)...)
	}
	for _, r := range runs {
		r.prints("ready")
	}
	runs["stays"] = begin(t, dir, append([]string{"run", "--name", "stays"}, until(file("stays"))...)...)
	runs["stays"].prints("ready")
	out, errs, code := runLocal(t, dir, atOnce, "ls")
	if n := strings.Count(out, "running"); code != 0 || n != 4 {
		t.Errorf("ls exits %d and shows %d running jobs, want 4:\n%s%s", code, n, out, errs)
	}
	out, _, _ = runLocal(t, dir, atOnce, "node", "ls", "-o", "name")
	nodes := map[string]bool{}
	for _, n := range strings.Fields(out) {
		nodes[n] = true
	}
	if len(nodes) != 4 {
		t.Errorf("node ls shows %q, want four names", out)
	}

	touch(t, file("ends"))
	if code := runs["ends"].ends(30 * time.Second); code != 0 {
		t.Errorf("the run that ends exits %d", code)
	}
	runs["ctrl-c"].signal(os.Interrupt)
	if code := runs["ctrl-c"].ends(45 * time.Second); code != 11 {
		t.Errorf("the run that was interrupted exits %d, want 11", code)
	}
	runs["killed"].signal(syscall.SIGKILL)
	runs["killed"].ends(5 * time.Second)

	for name, want := range map[string]string{"ends": "succeeded", "ctrl-c": "stopped", "killed": "stopped", "stays": "running"} {
		out, errs, code := runLocal(t, dir, atOnce, "status", name)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("status %s exits %d, want %s:\n%s%s", name, code, want, out, errs)
		}
	}
	out, errs, code = runLocal(t, dir, atOnce, "logs", "stays")
	if code != 0 || !strings.Contains(out, "ready") {
		t.Errorf("logs exits %d:\n%s%s", code, out, errs)
	}
	if _, errs, code := runLocal(t, dir, atOnce, "submit", "--", "true"); code != 5 || !strings.Contains(errs, "regroup up") {
		t.Errorf("submit to a run exits %d, want 5 and a remedy:\n%s", code, errs)
	}
	if _, errs, code := runLocal(t, dir, atOnce, "stop", "ctrl-c"); code != 5 && code != 0 {
		t.Errorf("stop of a job that has ended exits %d:\n%s", code, errs)
	}
	touch(t, file("stays"))
	if code := runs["stays"].ends(30 * time.Second); code != 0 {
		t.Errorf("the run that stays exits %d", code)
	}
}

// TestAStopReachesTheRunThatHasTheJob stops a job of the second of two runs.
func TestAStopReachesTheRunThatHasTheJob(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	never := filepath.Join(dir, "never")
	first := begin(t, dir, append([]string{"run", "--name", "first"}, until(never)...)...)
	first.prints("ready")
	second := begin(t, dir, append([]string{"run", "--name", "second", "--stop-grace", "1s"}, until(never)...)...)
	second.prints("ready")
	if _, errs, code := runLocal(t, dir, atOnce, "stop", "second"); code != 0 {
		t.Fatalf("stop exits %d: %s", code, errs)
	}
	if code := second.ends(30 * time.Second); code != 11 {
		t.Errorf("the run that was stopped exits %d, want 11", code)
	}
	if out, _, _ := runLocal(t, dir, atOnce, "status", "first"); !strings.Contains(out, "running") {
		t.Errorf("the other one is not running:\n%s", out)
	}
}

// TestAKilledRunLeavesNothingBehind checks that neither processes nor locks of a killed run are
// left.
func TestAKilledRunLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "pids")
	killed := begin(t, dir, "run", "--name", "killed", "--", "sh", "-c",
		"sleep 600 & a=$!; setsid env -i sleep 600 & echo $$ $a $! > "+file+".new; mv "+file+".new "+file+"; wait")
	left := pids(t, file, 3)
	killed.signal(syscall.SIGKILL)
	killed.ends(5 * time.Second)
	for _, args := range [][]string{{"ls"}, {"status", "killed"}, {"node", "ls"}, {"events", "killed"}, {"logs", "killed"}} {
		if _, errs, code := runLocal(t, dir, atOnce, args...); code != 0 {
			t.Errorf("%v exits %d: %s", args, code, errs)
		}
	}
	// The next one waits for its own agent, not for the record of the killed one.
	if _, errs, code := runLocal(t, dir, atOnce, "run", "--", "true"); code != 0 || !strings.Contains(errs, "1 generation ") {
		t.Errorf("the next run exits %d, want 0 after 1 generation: %s", code, errs)
	}
	eventually(t, patience, func() (bool, string) {
		for _, p := range left {
			if p.alive() {
				return false, fmt.Sprintf("of the processes %v of its worker %v lives on", left, p)
			}
		}
		return true, ""
	})
	if out, _, _ := runLocal(t, dir, atOnce, "ls"); !strings.Contains(out, "stopped") || strings.Contains(out, "running") {
		t.Errorf("ls shows\n%s", out)
	}
	if _, errs, code := runLocal(t, dir, atOnce, "submit", "--", "true"); code != 5 || !strings.Contains(errs, "regroup up") {
		t.Errorf("submit exits %d, want 5 and a remedy:\n%s", code, errs)
	}
}

// TestNobodyReads closes the pipe that a run writes to, as head does. The run stops its job and
// says so.
func TestNobodyReads(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin("regroup"), withState(dir, []string{"run", "--name", "talks", "--", "sh", "-c", "while echo line; do sleep 0.05; done"})...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 141 || !strings.Contains(errs.String(), "nobody reads") {
		t.Errorf("exit %d, want 141:\n%s", code, errs.String())
	}
	if out, errs, code := runLocal(t, dir, atOnce, "status", "talks"); code != 0 || !strings.Contains(out, "stopped") {
		t.Errorf("status exits %d:\n%s%s", code, out, errs)
	}
}

// TestAServerThatEndsIsNotWaitedFor kills `regroup up` while a run and another command follow one
// of its jobs.
func TestAServerThatEndsIsNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	up := begin(t, dir, "up", "--slots", "1")
	up.prints("regroup is up")
	run := begin(t, dir, append([]string{"run", "--name", "job"}, until(filepath.Join(dir, "never"))...)...)
	run.prints("ready")
	logs := begin(t, dir, "logs", "job", "-f")
	logs.prints("ready")
	up.signal(syscall.SIGKILL)
	for _, s := range []*started{run, logs} {
		if code := s.ends(20 * time.Second); code != 5 {
			t.Errorf("%v exits %d, want 5", s.cmd.Args, code)
		}
		s.prints("has ended")
	}
}

// TestAStoppedRunIsNotWaitedFor stops a run with Ctrl-Z, so that it does not reply.
func TestAStoppedRunIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := begin(t, dir, append([]string{"run", "--name", "job"}, until(filepath.Join(dir, "end"))...)...)
	run.prints("ready")
	run.signal(syscall.SIGSTOP)
	if _, errs, code := runLocal(t, dir, atOnce, "ls"); code != 5 || !strings.Contains(errs, "kill -CONT") {
		t.Errorf("ls exits %d, want 5 and a remedy:\n%s", code, errs)
	}
	if _, errs, code := runLocal(t, dir, patience, "run", "--", "true"); code != 0 {
		t.Errorf("a run beside it exits %d: %s", code, errs)
	}
	run.signal(syscall.SIGCONT)
	touch(t, filepath.Join(dir, "end"))
	if code := run.ends(30 * time.Second); code != 0 {
		t.Errorf("continued, it exits %d", code)
	}
}
