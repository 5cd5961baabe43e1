package proc

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/agent/capture"
	"github.com/regroup-io/regroup/agent/procfs"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/spawn"
)

// helperDir makes the test binary an agent that starts one worker and then waits to be killed.
const helperDir = "PROC_TEST_AGENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperDir); dir != "" {
		playAgent(dir)
		return
	}
	if play := os.Getenv(helperThreads); play != "" {
		playThreads(play)
		return
	}
	if dir := os.Getenv(helperGuard); dir != "" {
		playGuard(dir)
		return
	}
	if limits := os.Getenv(helperDelegated); limits != "" {
		playDelegated(limits)
		return
	}
	goleak.VerifyTestMain(m)
}

func playAgent(dir string) {
	d, err := New(Options{StateDir: dir})
	if err != nil {
		panic(err)
	}
	go func() { _ = d.Run(context.Background()) }()
	d.Start(worker.StartProcess{
		Job: "j-0000", Place: ident.Place{Node: "n", Slot: 1}, Attempt: 2, Worker: ident.Incarnation(os.Getenv("PROC_TEST_WORKER")), Generation: 3,
		Command: []string{"sh", "-c", os.Getenv("PROC_TEST_SCRIPT")}, Env: map[string]string{"REGROUP_INCARNATION": os.Getenv("PROC_TEST_WORKER")},
		Span: ownSpan,
	}, func(worker.Input) {}, func(_ string, lines []output.Line) {
		for _, l := range lines {
			fmt.Println(l.Text)
		}
	})
	select {}
}

// ownSpan is the span of the worker of an agent that is killed.
var ownSpan = events.Span{
	Service: "worker", Name: "worker process", Parent: tracing.JobTrace("j-0000"), Self: tracing.Child(tracing.JobTrace("j-0000"), "process"),
	Start: time.Date(2026, 1, 1, 0, 0, 0, 7, time.UTC), Attributes: map[string]string{"regroup.rank": "2"},
}

// own returns a worker name unique to this test run, because leftovers are searched for by name on
// the whole machine.
func own(t *testing.T) ident.Incarnation {
	return ident.Incarnation(fmt.Sprintf("01%s-%d", t.Name(), os.Getpid()))
}

type rig struct {
	t      *testing.T
	id     ident.Incarnation
	d      *Driver
	mu     sync.Mutex
	lines  []string
	states []string // of lines that are not finished
	in     chan worker.Input
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	if o.StateDir == "" {
		o.StateDir = t.TempDir()
	}
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return &rig{t: t, id: own(t), d: d, in: make(chan worker.Input, 16)}
}

func (r *rig) start(command ...string) {
	r.startWith(worker.StartProcess{Worker: r.id, Command: command, Env: map[string]string{"REGROUP_INCARNATION": string(r.id)}})
}

func (r *rig) startWith(s worker.StartProcess) {
	r.d.Start(s, func(in worker.Input) { r.in <- in }, func(_ string, lines []output.Line) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, l := range lines {
			if l.Open {
				r.states = append(r.states, l.Text)
			} else {
				r.lines = append(r.lines, l.Text)
			}
		}
	})
}

func (r *rig) output() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

func next[T worker.Input](r *rig) T {
	r.t.Helper()
	select {
	case in := <-r.in:
		got, ok := in.(T)
		if !ok {
			r.t.Fatalf("got %T %+v", in, in)
		}
		return got
	case <-time.After(time.Minute):
		r.t.Fatal("no input within a minute")
	}
	panic("unreachable")
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// runs reports whether a process runs; a zombie does not.
func runs(pid int) bool {
	task, ok := procfs.Dir("/proc").Process(pid)
	return ok && task.State != 'Z'
}

func pidLine(t *testing.T, r *rig) int {
	t.Helper()
	until(t, "the script prints a pid", func() bool { return len(r.output()) > 0 })
	pid, err := strconv.Atoi(r.output()[0])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestExitCodeAndLastLines(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.start("sh", "-c", "for i in $(seq 1 30); do echo out $i; done; echo bad >&2; exit 7")
	if pid := next[worker.ProcessStarted](r).PID; pid <= 0 {
		t.Errorf("pid %d", pid)
	}
	x := next[worker.ProcessExited](r)
	if x.ExitCode != 7 || x.Signal != "" || x.OOM || len(x.Lines) != 20 || !slices.Contains(x.Lines, "out 30") {
		t.Errorf("exit %+v", x)
	}
	if got := r.output(); len(got) != 31 || !slices.Contains(got, "bad") {
		t.Errorf("%d lines of 31", len(got))
	}
}

func TestExitBySignal(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.start("sh", "-c", "kill -SEGV $$")
	next[worker.ProcessStarted](r)
	if x := next[worker.ProcessExited](r); x.Signal != "SIGSEGV" || x.Number != 11 || x.ExitCode != -1 || x.OOM {
		t.Errorf("exit %+v", x)
	}
}

// TestExceptionOfAProgram: a program's error is found on stderr, otherwise on stdout, with the file
// named relative to its directory.
func TestExceptionOfAProgram(t *testing.T) {
	t.Parallel()
	const raised = `echo "Traceback (most recent call last):" >&2; echo "  File \"$PWD/train.py\", line 3, in main" >&2; echo "ValueError: $1" >&2; `
	for name, c := range map[string]struct{ script, want string }{
		"uncaught":             {raised + "for i in $(seq 1 30); do echo bye >&2; done; exit 1", "ValueError: no (train.py:3 in main)"},
		"reported by itself":   {raised + "echo giving up >&2; exit 3", "ValueError: no (train.py:3 in main)"},
		"reported long before": {raised + "for i in $(seq 1 30); do echo going on >&2; done; exit 3", ""},
		"no failure":           {raised + "exit 0", ""},
		// The agent's machine knows who sent it.
		"a signal from outside": {raised + "kill -KILL $$", "ValueError: no (train.py:3 in main)"},
		"on stdout":             {"exec 2>&1; " + raised + "exit 1", "ValueError: no (train.py:3 in main)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Options{})
			r.startWith(worker.StartProcess{
				Worker: r.id, Dir: t.TempDir(), Command: []string{"sh", "-c", c.script, "sh", "no"}, Env: map[string]string{"REGROUP_INCARNATION": string(r.id)},
			})
			next[worker.ProcessStarted](r)
			got := ""
			if x := next[worker.ProcessExited](r).Exception; x != nil {
				got = x.String()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestForkedGrandchildDiesWithItsLeader(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	// Without the incarnation in its environment, so that only the group identifies it.
	r.start("sh", "-c", "env -i sleep 1000 & echo $!; exit 3")
	next[worker.ProcessStarted](r)
	pid := pidLine(t, r)
	if x := next[worker.ProcessExited](r); x.ExitCode != 3 {
		t.Errorf("exit %+v", x)
	}
	until(t, "the grandchild has ended", func() bool { return !runs(pid) })
}

func TestGrandchildThatLeftTheGroupIsSweptUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.start("sh", "-c", "setsid sleep 1000 & echo $!; while kill -0 $! && [ $(cut -d' ' -f5 /proc/$!/stat) != $! ]; do :; done; exit 3")
	next[worker.ProcessStarted](r)
	pid := pidLine(t, r)
	next[worker.ProcessExited](r)
	until(t, "the grandchild has ended", func() bool { return !runs(pid) })
}

func TestSignalAndKillReachTheGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.start("sh", "-c", `trap 'echo received' TERM; echo $$; while :; do sleep 0.01; done`)
	pid := next[worker.ProcessStarted](r).PID
	if got := pidLine(t, r); got != pid {
		t.Errorf("pid %d, the process says %d", pid, got)
	}
	if err := r.d.Signal(r.id, "SIGTERM"); err != nil {
		t.Fatal(err)
	}
	until(t, "the signal is received", func() bool { return slices.Contains(r.output(), "received") })
	if !runs(pid) {
		t.Fatal("it did not ignore the signal")
	}
	r.d.Kill(r.id)
	if x := next[worker.ProcessExited](r); x.Signal != "SIGKILL" || x.OOM {
		t.Errorf("exit %+v", x)
	}
	if err := r.d.Signal(r.id, "SIGNONSENSE"); errcode.Of(err) != errcode.Invalid {
		t.Errorf("unknown signal: %v", err)
	}
}

func TestCommandsThatCannotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	script := filepath.Join(dir, "script")
	for path, mode := range map[string]os.FileMode{plain: 0o644, script: 0o755} {
		if err := os.WriteFile(path, []byte("#!/no/such/interpreter\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		command string
		dir     string
		code    int
		detail  string
	}{
		{"no-such-program", "", 127, "no such file: no-such-program (not found in PATH)"},
		{"/no/such/program", "", 127, "no such file: /no/such/program"},
		{plain, "", 126, "not executable: " + plain},
		{script, "", 127, "no such file: the interpreter of " + script},
		{"./plain", dir, 126, "not executable: ./plain"},
		{"sh", "/no/such/dir", 126, "no such directory: /no/such/dir"},
	} {
		r := newRig(t, Options{})
		r.startWith(worker.StartProcess{Worker: r.id, Command: []string{c.command}, Dir: c.dir})
		if f := next[worker.ProcessFailedToStart](r); f.ExitCode != c.code || f.Detail != c.detail {
			t.Errorf("%s: %+v", c.command, f)
		}
	}
}

func TestLongLinesAreSplitAndLargeOutputIsComplete(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.start("sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x; echo; yes abc | head -n 200000; printf 'no newline'")
	next[worker.ProcessStarted](r)
	x := next[worker.ProcessExited](r)
	all := r.output()
	long := 0
	for _, l := range all {
		if len(l) > capture.MaxLine {
			t.Fatalf("a line of %d bytes", len(l))
		}
		if strings.HasPrefix(l, "x") {
			long += len(l)
		}
	}
	if long != 100000 || all[len(all)-1] != "no newline" || x.Lines[len(x.Lines)-1] != "no newline" {
		t.Errorf("long line: %d bytes of 100000, last %q", long, all[len(all)-1])
	}
	if n := len(all) - (100000/capture.MaxLine + 1); n != 200001 {
		t.Errorf("%d short lines of 200001", n)
	}
}

func TestEnvironmentKeepsTheControlPlaneOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Environ: []string{
		"PATH=" + os.Getenv("PATH"), "NATS_URL=secret", "REGROUP_SERVER=secret", "RANK=9", "HOME=/h", "OMP_NUM_THREADS=4",
		"REGROUP_CHECKPOINT_DIR=/c", "REGROUP_GPU=0", "REGROUP_TOKEN=secret", "HOROVOD_FUSION_THRESHOLD=0", "HOROVOD_RANK=9", "TORCHELASTIC_RUN_ID=other",
		"NOTIFY_SOCKET=/run/systemd/notify", "WATCHDOG_USEC=30000000", "WATCHDOG_PID=1",
	}})
	r.startWith(worker.StartProcess{
		Worker: r.id, Command: []string{"env"}, Env: map[string]string{"REGROUP_JOB": "j", "HOME": "/w", "REGROUP_GPU": "1"},
		Defaults: map[string]string{"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
	})
	next[worker.ProcessStarted](r)
	next[worker.ProcessExited](r)
	got := r.output()
	slices.Sort(got)
	want := []string{"HOME=/w", "HOROVOD_FUSION_THRESHOLD=0", "OMP_NUM_THREADS=4", "PATH=" + os.Getenv("PATH"), "PYTHONUNBUFFERED=1", "REGROUP_CHECKPOINT_DIR=/c", "REGROUP_GPU=1", "REGROUP_JOB=j"}
	if !slices.Equal(got, want) {
		t.Errorf("environment %q", got)
	}
}

// TestWorkersExportToTheCollector: they inherit where spans are sent, as any user, and not what the
// agent proves its identity to the collector with.
func TestWorkersExportToTheCollector(t *testing.T) {
	t.Parallel()
	environ := []string{
		"PATH=" + os.Getenv("PATH"), "TRACEPARENT=00-of-the-agent", "TRACESTATE=of-the-agent", "OTEL_SERVICE_NAME=trainer",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_EXPORTER_OTLP_CERTIFICATE=/ca.pem",
		"OTEL_EXPORTER_OTLP_HEADERS=authorization=agents", "OTEL_EXPORTER_OTLP_TRACES_HEADERS=x-key=agents",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://agent:agents@collector/v1/traces", "OTEL_EXPORTER_OTLP_CLIENT_KEY=/agents.pem",
		"OTEL_EXPORTER_OTLP_METRICS_CLIENT_CERTIFICATE=/agents.pem",
	}
	exported := []string{"OTEL_EXPORTER_OTLP_CERTIFICATE=/ca.pem", "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"}
	of := func(who *worker.Account) []string {
		s := worker.StartProcess{Account: who, Env: map[string]string{"TRACEPARENT": "00-of-the-worker"}}
		return slices.DeleteFunc(environment(environ, s), func(kv string) bool { return !strings.HasPrefix(kv, "OTEL_") && !strings.HasPrefix(kv, "TRACE") })
	}
	if got, want := of(nil), append(slices.Clone(exported), "OTEL_SERVICE_NAME=trainer", "TRACEPARENT=00-of-the-worker"); !slices.Equal(got, want) {
		t.Errorf("a worker of the agent's user has %q", got)
	}
	if got, want := of(stranger), append(slices.Clone(exported), "TRACEPARENT=00-of-the-worker"); !slices.Equal(got, want) {
		t.Errorf("a worker of another user has %q", got)
	}
}

// TestASecretOfTheCollectorMayBeGiven: to a job that names it, if the agent allows that.
func TestASecretOfTheCollectorMayBeGiven(t *testing.T) {
	t.Parallel()
	const headers = "OTEL_EXPORTER_OTLP_HEADERS"
	r := newRig(t, Options{Environ: []string{"PATH=" + os.Getenv("PATH"), headers + "=authorization=agents"}, AllowSecrets: []string{headers}})
	r.startWith(worker.StartProcess{
		Worker: r.id, Command: []string{"sh", "-c", `[ "$OTEL_EXPORTER_OTLP_HEADERS" = authorization=agents ]`}, Env: map[string]string{},
		Secrets: map[string]string{headers: "env:" + headers},
	})
	next[worker.ProcessStarted](r)
	if x := next[worker.ProcessExited](r); x.ExitCode != 0 {
		t.Errorf("the worker was not given what it was to have: %+v", x)
	}
}

func TestKilledForMemoryRequiresTheKernelsCounter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	counter := filepath.Join(dir, "memory.events")
	count := func(n int) {
		if err := os.WriteFile(counter, fmt.Appendf(nil, "low 0\noom %d\noom_kill %d\noom_group_kill 0\n", n, n), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	count(4)
	proc := t.TempDir() // no cgroup file: the root of the mount is used
	r := newRig(t, Options{CGroups: dir, Proc: proc})
	kill := func(grow bool) worker.ProcessExited {
		r.start("sh", "-c", "read x < /dev/zero; sleep 1000")
		pid := next[worker.ProcessStarted](r).PID
		if grow {
			count(5)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		return next[worker.ProcessExited](r)
	}
	if x := kill(false); x.OOM {
		t.Error("a kill by anybody counts as out of memory")
	}
	if x := kill(true); !x.OOM {
		t.Error("the kernel's kill is not seen")
	}
	if x := kill(false); x.OOM {
		t.Error("one kill of the kernel explains two exits")
	}
}

// agent starts the test binary as an agent and returns it with the first line that its worker
// prints.
func agent(t *testing.T, dir, script string) (*exec.Cmd, int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperDir+"="+dir, "PROC_TEST_WORKER="+string(own(t)), "PROC_TEST_SCRIPT="+script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := spawn.Start(cmd); err != nil { // with a mark it could be killed with another test's worker
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return cmd, pid
}

func TestWorkerDiesWithItsAgent(t *testing.T) {
	t.Parallel()
	cmd, pid := agent(t, t.TempDir(), "echo $$; exec sleep 1000")
	if !runs(pid) {
		t.Fatal("the worker does not run")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	until(t, "the worker has ended", func() bool { return !runs(pid) })
}

func TestRestartedAgentFindsAndFencesWhatIsLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// The leader dies with the agent; its child keeps running as an orphan.
	cmd, pid := agent(t, dir, "sleep 1000 & echo $!; wait")
	d, err := New(Options{StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the record has the pid", func() bool {
		var r record
		b, err := os.ReadFile(d.file(own(t)))
		return err == nil && json.Unmarshal(b, &r) == nil && r.PID > 0
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
	found, err := d.Fence(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := worker.Orphaned{Job: "j-0000", Place: ident.Place{Node: "n", Slot: 1}, Attempt: 2, Worker: own(t), Generation: 3}
	if len(found) != 1 || found[0].PID == 0 {
		t.Fatalf("found %+v", found)
	}
	want.Span = ownSpan
	if found[0].PID = 0; !reflect.DeepEqual(found[0], want) {
		t.Errorf("found %+v", found[0])
	}
	until(t, "the child has ended", func() bool { return !runs(pid) })
	if again, err := d.Fence(ctx); err != nil || len(again) != 0 {
		t.Errorf("again: %v %v", again, err)
	}
}

func TestFenceSparesAReusedPID(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := exec.Command("sleep", "1000")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := spawn.Start(other); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	d, err := New(Options{StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(d.dir(), 0o700); err != nil {
		t.Fatal(err)
	}
	rec := fmt.Sprintf(`{"pid":%d,"start":1,"boot":%q,"incarnation":"01X","job":"j-0000","place":{"node":"n","slot":0},"attempt":1}`, other.Process.Pid, d.proc.Boot())
	if err := os.WriteFile(d.file("01X"), []byte(rec), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := d.Fence(context.Background())
	if err != nil || len(found) != 1 {
		t.Fatalf("%v %v", found, err)
	}
	if !runs(other.Process.Pid) {
		t.Error("a stranger was killed")
	}
}
