package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/ident"
)

// python is Debian's, which `make setup` installs.
const python = "/usr/bin/python3"

// keep makes the driver keep spares that import these modules alone, and waits until they are
// started.
func (r *rig) keep(n int, command []string, dir string, modules ...string) (pids []int, failed chan string) {
	r.t.Helper()
	failed = make(chan string, 8)
	said := ""
	r.d.KeepSpares(worker.KeepSpares{Job: "j-0000", Count: n, Preload: modules, Command: command, Dir: dir}, func(s worker.SparesKept) {
		if s.Problem != said {
			said = s.Problem
			failed <- said
		}
	})
	until(r.t, "the spares are started", func() bool {
		pids = nil
		select {
		case detail := <-failed:
			if len(modules) == 0 || modules[0] != "no_such_module" {
				r.t.Fatal(detail)
			}
			failed <- detail
		default:
		}
		r.d.mu.Lock()
		defer r.d.mu.Unlock()
		if s := r.d.spares["j-0000"]; s != nil {
			for _, sp := range s.idle {
				pids = append(pids, sp.p.pid)
			}
		}
		return len(pids) == n
	})
	return pids, failed
}

func withoutTorch(t *testing.T) {
	t.Helper()
	all := imported
	imported = nil
	t.Cleanup(func() { imported = all })
}

// workerOf is a worker of the job with a token in its environment.
func (r *rig) workerOf(dir string, command ...string) worker.StartProcess {
	return worker.StartProcess{
		Job: "j-0000", Place: ident.Place{Node: "n"}, Worker: r.id, Command: command, Dir: dir,
		Env: map[string]string{"REGROUP_INCARNATION": string(r.id), "RANK": "3", "OWN": "value"},
	}
}

// TestASpareRunsWhatPythonRuns: everything that a program can see of how it was started is the same
// in a spare and in a new process.
func TestASpareRunsWhatPythonRuns(t *testing.T) {
	withoutTorch(t)
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const looks = `import os, sys
m = sys.modules["__main__"]
print(__name__, sys.argv, repr(sys.path[0]), getattr(m, "__file__", None), m.__spec__ and m.__spec__.name, m.__package__, type(m.__loader__).__name__)
print(sorted(k for k in vars(m) if not k.startswith("__")), os.getcwd(), os.environ["RANK"], os.environ["OWN"], "REGROUP_SLOT" in os.environ, sys.flags.optimize, sys.stdout.line_buffering, __doc__)
print(os.environ["REGROUP_INCARNATION"][:2], os.listdir("/proc/self/fd").count("3"))
`
	write("looks.py", looks)
	write("sub/relative.py", "import beside; print(beside.x)")
	write("sub/beside.py", "x = 5")
	write("pkg/__init__.py", "")
	write("pkg/mod.py", looks)
	write("whole/__main__.py", looks)
	write("raises.py", "def f():\n    raise ValueError('x')\ntry:\n    f()\nexcept ValueError as e:\n    raise KeyError('y') from e\n")
	write("syntax.py", "x = = 1\n")
	write("exits.py", "import atexit, sys\natexit.register(print, 'at exit')\nsys.exit(7)\n")
	write("says.py", "import sys\nsys.exit('a reason')\n")
	write("at_once.py", "import os\nprint('x', flush=True)\nos._exit(9)\n")
	write("interrupted.py", "raise KeyboardInterrupt\n")
	write("hook.py", "import sys\nsys.excepthook = lambda t, e, tb: print('hook', t, e, tb is not None)\nraise ValueError('x')\n")
	write("last.py", "import atexit, sys\natexit.register(lambda: print(repr(sys.last_value)))\nraise ValueError('x')\n")
	write("spawns.py", `import multiprocessing, pickle
def double(x): return 2 * x
class Thing: pass
if __name__ == "__main__":
    print(type(pickle.loads(pickle.dumps(Thing()))), multiprocessing.get_context("spawn").Pool(1).map(double, [1, 2]))
    print(multiprocessing.get_context("fork").Pool(1).map(double, [3]))
`)
	for _, command := range [][]string{
		{"looks.py", "a", "-b"},
		{filepath.Join(dir, "looks.py")},
		{"-u", "-O", "looks.py"},
		{"-W", "ignore", "-Xdev", "sub/relative.py"},
		{"-m", "pkg.mod", "x"},
		{"-um", "pkg.mod"}, // has no spare, and works
		{"-c", "import sys; print(sys.argv, repr(sys.path[0]), __name__)", "y"},
		{"whole", "z"},
		{"raises.py"},
		{"syntax.py"},
		{"exits.py"},
		{"says.py"},
		{"at_once.py"},
		{"interrupted.py"},
		{"hook.py"},
		{"last.py"},
		{"no_such.py"},
		{"-m", "no_such"},
		{"-c", "1/0"},
		{"spawns.py"},
	} {
		t.Run(strings.Join(command, " "), func(t *testing.T) {
			t.Parallel()
			full := slices.Concat([]string{python}, command)
			outcome := func(spare bool) (string, int) {
				r := newRig(t, Options{})
				r.id += ident.Incarnation(fmt.Sprint(spare)) // the driver looks for what the first one has left
				want, failed := 0, make(chan string)
				if _, _, err := interpreter(full); err == nil && spare {
					var pids []int
					pids, failed = r.keep(1, full, dir, "json")
					want = pids[0]
				}
				r.startWith(r.workerOf(dir, full...))
				started, ok := (<-r.in).(worker.ProcessStarted)
				if !ok || want != 0 && started.PID != want {
					select {
					case detail := <-failed:
						t.Errorf("the spare: %s", detail)
					default:
					}
					t.Fatalf("%+v: the process is not the spare, %d", started, want)
				}
				x := (<-r.in).(worker.ProcessExited)
				r.mu.Lock()
				defer r.mu.Unlock()
				lines := slices.Clone(r.lines)
				slices.Sort(lines) // stdout and stderr are read by turns
				return fmt.Sprintf("exit %d %s\n%s", x.ExitCode, x.Signal, strings.Join(lines, "\n")), want
			}
			fresh, _ := outcome(false)
			warm, _ := outcome(true)
			if strings.Contains(fresh, "no_such.py") || slices.Contains(command, "no_such.py") {
				// The interpreter's own words, before a program; a spare has Python's.
				if !strings.Contains(warm, "No such file or directory") || strings.HasPrefix(warm, "exit 0") {
					t.Errorf("a script that does not exist: %s", warm)
				}
				return
			}
			if fresh != warm {
				t.Errorf("a new process:\n%s\na spare:\n%s", fresh, warm)
			}
		})
	}
}

// TestSparesEnd: as workers, with the job, with the driver, and with an agent that dies.
func TestSparesEnd(t *testing.T) {
	withoutTorch(t)
	r := newRig(t, Options{})
	command := []string{python, "-c", "print('works')"}
	pids, _ := r.keep(3, command, "")
	r.startWith(r.workerOf("", command...))
	if s := next[worker.ProcessStarted](r); !slices.Contains(pids, s.PID) {
		t.Errorf("process %d is none of the spares %d", s.PID, pids)
	}
	if x := next[worker.ProcessExited](r); x.ExitCode != 0 {
		t.Errorf("a spare that has imported nothing ends with %+v", x)
	}
	r.d.KeepSpares(worker.KeepSpares{Job: "j-0000"}, func(worker.SparesKept) {})
	until(t, "the spares have ended, and their files are removed", func() bool {
		left, err := filepath.Glob(filepath.Join(r.d.dir(), "*"))
		return err == nil && len(left) == 0 && !slices.ContainsFunc(pids, runs)
	})
	r.keep(1, command, "")
	if found, err := r.d.Fence(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("a spare of an earlier agent is no worker: %+v, %v", found, err)
	}
}

// TestASpareThatIsBroken: the worker starts without it, and the reason is logged.
func TestASpareThatIsBroken(t *testing.T) {
	withoutTorch(t)
	r := newRig(t, Options{})
	command := []string{python, "-c", "print('works')"}
	pids, failed := r.keep(1, command, "", "no_such_module", "nor_this?")
	if got := <-failed; got != "no_such_module: ModuleNotFoundError: No module named 'no_such_module'" {
		t.Errorf("says %q", got)
	}
	if err := syscall.Kill(pids[0], syscall.SIGSEGV); err != nil {
		t.Fatal(err)
	}
	if got := <-failed; !strings.Contains(got, "SIGSEGV") {
		t.Errorf("says %q", got)
	}
	r.startWith(r.workerOf("", command...))
	if s := (<-r.in).(worker.ProcessStarted); s.PID == pids[0] {
		t.Error("a dead spare was taken")
	}
	if x := (<-r.in).(worker.ProcessExited); x.ExitCode != 0 || x.Lines[0] != "works" {
		t.Errorf("%+v", x)
	}
}

func TestInterpreter(t *testing.T) {
	for command, want := range map[string]string{
		"python train.py --x":              "python | train.py --x",
		"python3 -u -W ignore -X dev a.py": "python3 -u -W ignore -X dev | a.py",
		"python -OO -m a.b c":              "python -OO | -m a.b c",
		"python -c code":                   "python | -c code",
		"python":                           "",
		"python -u":                        "",
		"python -":                         "",
		"python -i a.py":                   "",
		"python -m":                        "",
	} {
		options, rest, err := interpreter(strings.Fields(command))
		got := strings.Join(options, " ") + " | " + strings.Join(rest, " ")
		if err != nil {
			got = ""
		}
		if got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}
