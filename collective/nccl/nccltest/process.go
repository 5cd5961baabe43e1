package nccltest

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// roleVariable gives the test binary another role than running tests.
const roleVariable = "NCCL_TEST_ROLE"

// Process is this test binary again, in a role. It is driven by lines.
type Process struct {
	Cmd   *exec.Cmd
	Input *os.File
	Lines *bufio.Scanner
}

// Start starts a process with a role; it is killed when the test ends.
func (r *Rig) Start(t *testing.T, role string, env ...string) *Process {
	t.Helper()
	cmd := exec.CommandContext(Soon(t), os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "REGROUP_FAKE_FOLDER="+r.dir, "REGROUP_FAKE_STRICT=1",
		"GORACE=atexit_sleep_ms=0") // else the race detector sleeps a second
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	in, w, err := os.Pipe()
	OK(t, err)
	cmd.Stdin = in
	out, err := cmd.StdoutPipe()
	OK(t, err)
	OK(t, cmd.Start())
	_ = in.Close()
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = w.Close() })
	return &Process{cmd, w, bufio.NewScanner(out)}
}

// Expect reads the next line, which begins with word, and returns the rest.
func (p *Process) Expect(t *testing.T, word string) string {
	t.Helper()
	if !p.Lines.Scan() {
		t.Fatalf("the process ended, %q expected", word)
	}
	rest, is := strings.CutPrefix(p.Lines.Text(), word+" ")
	if !is && p.Lines.Text() != word {
		t.Fatalf("%q, expected %q", p.Lines.Text(), word)
	}
	return rest
}

// Atoi is strconv.Atoi for what a test itself has written.
func Atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}
