package local

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// runLocal runs the binary with its own state directory and without a server: it starts everything
// itself.
func runLocal(t *testing.T, dir string, limit time.Duration, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin("regroup"), append(args[:1:1], append([]string{"--state-dir", filepath.Join(dir, "state")}, args[1:]...)...)...)
	// So a command that waits for what does not come ends later than one that is only slow.
	cmd.Env = append([]string{"REGROUP_TIMEOUT=" + (2 * atOnce).String()}, append(os.Environ(), "REGROUP_AGENT_CHECKPOINT_FREE=0", "NO_COLOR=1", "GORACE=halt_on_error=1 exitcode=66")...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // SIGQUIT dumps the goroutines of a hang
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("regroup %v: %v\n%s", args, err, errs.String())
	}
	if ctx.Err() != nil {
		t.Fatalf("regroup %v did not end within %s\n%s", args, limit, tail(errs.Bytes(), 20000))
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestExitCodes checks the documented exit codes of `regroup run`.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name    string
		args    []string
		code    int
		message string
	}{
		{"success", []string{"--", "true"}, 0, ""},
		{"failure budget", []string{"--max-restarts", "1", "--", "sh", "-c", "echo broken >&2; exit 7"}, 14, "exit code 7"},
		{"the first failure ends it", []string{"--max-restarts", "0", "--", "sh", "-c", "exit 7"}, 14, "exit code 7"},
		{"the code kills it", []string{"--same-step", "2", "--recovery", "in-process", "--", "sh", "-c", "exit 7"}, 10, "the data or the code kills it: 2 failures in a row"},
		{"no regroup is allowed", []string{"--reset-limit", "0", "--", "sh", "-c", "exit 7"}, 14, "the reset limit is used up"},
		{"missing command", []string{"--", "/no/such/program"}, 10, "no such file"},
		{"bad flags", []string{"--workers", "4:2", "--", "true"}, 2, "workers"},
		{"that of a worker", []string{"--exit-code-from", "worker", "--max-restarts", "0", "--", "sh", "-c", "exit 7"}, 7, "exit code 7"},
		{"that of a worker's signal", []string{"--exit-code-from", "worker", "--max-restarts", "0", "--", "sh", "-c", "kill -9 $$"}, 137, "SIGKILL"},
		{"that of a worker, but it succeeds", []string{"--exit-code-from", "worker", "--", "true"}, 0, ""},
		{"that of a node", []string{"--exit-code-from", "node", "--", "true"}, 2, "write worker"},
		{"never enough slots", []string{"--workers", "3", "--slots", "2", "--", "true"}, 13, "3 workers wanted at least, and --slots 2 gives no more room"},
		{"unknown flag", []string{"--wrokers", "2", "--", "true"}, 2, "wrokers"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, errs, code := runLocal(t, t.TempDir(), patience, append([]string{"run"}, c.args...)...)
			if code != c.code || !strings.Contains(errs, c.message) {
				t.Errorf("exit %d, want %d; stderr must say %q:\n%s", code, c.code, c.message, errs)
			}
		})
	}
}

// TestHostsThatAreNotThereStartNothing: a source of hosts that cannot be read is a mistake in the
// call, told before anything is started.
func TestHostsThatAreNotThereStartNothing(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--host-discovery-script", "--host-file"} {
		dir := t.TempDir()
		_, errs, code := runLocal(t, dir, patience, "run", flag, "./no-such-hosts", "--", "true")
		if code != 2 || !strings.Contains(errs, "./no-such-hosts: no such file") {
			t.Errorf("%s: exit %d, want 2: %s", flag, code, errs)
		}
		if _, err := os.Stat(filepath.Join(dir, "state")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: something was started: %v", flag, err)
		}
	}
}

// TestInterrupt checks that Ctrl-C stops a local job gracefully; a worker that ignores SIGTERM is
// killed with its child.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	cmd := exec.Command(bin("regroup"), "run", "--state-dir", filepath.Join(dir, "state"), "--stop-grace", "1s", "--",
		"sh", "-c", "trap '' TERM; sleep 600 & echo $$ $! > "+pids+"; while :; do wait; done")
	log, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	printed := func() string {
		b, err := os.ReadFile(log.Name())
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var own, forked process
	eventually(t, patience, func() (bool, string) {
		b, _ := os.ReadFile(pids)
		f := strings.Fields(string(b))
		if len(f) == 2 {
			own, forked = processOf(atoi(f[0])), processOf(atoi(f[1]))
		}
		return forked.pid > 0, "the worker has not started: " + printed()
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		t.Fatalf("does not end after Ctrl-C:\n%s", printed())
	}
	if code := cmd.ProcessState.ExitCode(); code != 11 {
		t.Errorf("exit %d, want 11 (stopped)\n%s", code, printed())
	}
	eventually(t, patience, func() (bool, string) { return !own.alive() && !forked.alive(), "the worker or its child lives on" })
}

func atoi(s string) int {
	n := 0
	for _, c := range s {
		n = n*10 + int(c-'0')
	}
	return n
}

// TestDemo checks that the demo succeeds with real faults, and that its trace can be read from its
// store afterwards.
func TestDemo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, errs, code := runLocal(t, dir, 5*time.Minute, "demo", "-o", "json")
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, errs)
	}
	s := parseSummary(t, out)
	if s.Outcome != "succeeded" || s.Metrics["accuracy"] < 0.93 {
		t.Errorf("outcome %s, accuracy %v, want succeeded with at least 0.93", s.Outcome, s.Metrics["accuracy"])
	}
	if s.Samples == nil || s.Samples.Missing != 0 || s.Samples.Repeated != 0 || s.Samples.PerEpoch != 9000 {
		t.Errorf("samples %+v, want none missing or repeated of 9000", s.Samples)
	}
	survivorsKeepTheirProcess(t, s)
	causes := map[string]bool{}
	for _, i := range s.Incidents {
		causes[i.Cause] = true
		sum := 0.0
		for _, ms := range i.Phases {
			sum += ms
		}
		if i.To != 0 && (sum < i.Total*0.999 || sum > i.Total*1.001) {
			t.Errorf("incident %d: phases sum to %.3f ms, total is %.3f ms", i.ID, sum, i.Total)
		}
	}
	if !causes["grow"] || !(causes["worker-failed"] || causes["worker-lost"]) {
		t.Errorf("causes %v: want a worker's death and a node joining among them", causes)
	}
	trace, errs, code := runLocal(t, dir, patience, "trace", s.Job)
	if code != 0 {
		t.Fatalf("trace exits %d: %s", code, errs)
	}
	for _, service := range []string{"agent", "registry", "rendezvous", "worker"} {
		if !strings.Contains(trace, service) {
			t.Errorf("the trace has no span of %s:\n%s", service, trace)
		}
	}
	noDemoNodes(t, dir, nil)
	up := begin(t, dir, "up", "--slots", "1")
	up.prints("regroup is up")
	eventually(t, patience, func() (bool, string) {
		out, errs, code := runLocal(t, dir, atOnce, "node", "ls", "-o", "name")
		return code == 0 && out != "", "the node of up: " + errs
	})
	noDemoNodes(t, dir, up)
}

// noDemoNodes checks that the nodes of a demo have left, which never were nodes of this machine.
func noDemoNodes(t *testing.T, dir string, up *started) {
	t.Helper()
	out, errs, code := runLocal(t, dir, atOnce, "node", "ls", "-o", "name")
	if code != 0 || slices.ContainsFunc(strings.Fields(out), func(n string) bool { return slices.Contains([]string{"node-a", "node-b", "node-c", "node-d"}, n) }) {
		t.Errorf("node ls after the demo, beside up: %v, exits %d:\n%s%s", up != nil, code, out, errs)
	}
}

// TestADemoOnATerminal: what it does to the job stands in lines of its own, above the status line.
func TestADemoOnATerminal(t *testing.T) {
	t.Parallel()
	w := onTerminal(t, t.TempDir(), "demo")
	eventually(t, patience, func() (bool, string) {
		screen, _ := w.shows()
		return strings.Contains(screen, "joins with 1 slot") && strings.Contains(screen, "▸ 4 workers · planned"), "it shows\n" + screen
	})
	select { // killed, it would leave its nodes behind
	case <-w.done:
	case <-time.After(patience):
		t.Error("it does not end")
	}
	screen, _ := w.shows()
	for line := range strings.Lines(screen) {
		for _, said := range []string{"kill -9 rank", "kill -9 the agent", "joins with"} {
			if at := strings.Index(line, said); at >= 0 && !regexp.MustCompile(`^step \d+: (node-d )?$`).MatchString(line[:at]) {
				t.Errorf("a line is %q", line)
			}
		}
	}
}

// TestADemoThatIsInterrupted leaves no nodes either.
func TestADemoThatIsInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	demo := beginIn(t, dir, dir, []string{"REGROUP_HEALTH=" + freeAddress(t)}, "demo") // as in an image: its nodes are several processes
	demo.prints("▸ 4 workers")
	demo.signal(os.Interrupt)
	if code := demo.ends(patience); code != 130 {
		t.Errorf("it exits %d, want 130:\n%s", code, demo.printed())
	}
	noDemoNodes(t, dir, nil)
}

// TestSettingsOfTheShellReachWorkers checks documented variables from the environment of `regroup
// run` and from --env, which has precedence.
func TestSettingsOfTheShellReachWorkers(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("REGROUP_CHECKPOINT_DIR", dir)
	t.Setenv("REGROUP_GPU", "0")
	t.Setenv("REGROUP_BUCKET_BYTES", "1")
	t.Setenv("HOROVOD_FUSION_THRESHOLD", "123")
	const script = `printf 'has %s %s %s %s\n' "$REGROUP_CHECKPOINT_DIR" "$REGROUP_GPU" "$REGROUP_BUCKET_BYTES" "$HOROVOD_FUSION_THRESHOLD"`
	out, errs, code := runLocal(t, dir, patience, "run", "--env", "REGROUP_BUCKET_BYTES=2", "--", "sh", "-c", script)
	if want := "has " + dir + " 0 2 123\n"; code != 0 || !strings.Contains(out, want) {
		t.Errorf("exit %d, what the worker has lacks %q:\n%s\n%s", code, want, out, errs)
	}
}

// TestAStateFolderNamedFromHere: workers in another directory find their agent.
func TestAStateFolderNamedFromHere(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), bin("regroup"), append([]string{"run", "--state-dir", "state", "--workers", "2", "--workdir", t.TempDir()}, counter(20)...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "state")); err != nil {
		t.Error(err)
	}
}
