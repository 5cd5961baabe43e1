package local

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/regroup-io/regroup/internal/freeport"
)

// torchrunsVariables are those that torchrun 2.15 gives to a worker.
const torchrunsVariables = `RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT
TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_ERROR_FILE TORCHELASTIC_SIGNALS_TO_HANDLE
TORCH_NCCL_ASYNC_ERROR_HANDLING OMP_NUM_THREADS`

// TestTorchrun: a single node shows the output as it is, restarts the group as often as allowed,
// and gives all of torchrun's variables.
func TestTorchrun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := `for v in ` + strings.ReplaceAll(torchrunsVariables, "\n", " ") + `; do printenv $v >/dev/null || echo no $v; done
echo rank $RANK of $WORLD_SIZE restart $TORCHELASTIC_RESTART_COUNT role $ROLE_NAME arg $0
echo error $RANK >&2
test $RANK = 1 || touch $TORCHELASTIC_RESTART_COUNT
until test -e $TORCHELASTIC_RESTART_COUNT; do sleep 0.02; done
test $RANK = 0 || test $TORCHELASTIC_RESTART_COUNT = 2 || exit 3
test $TORCHELASTIC_RESTART_COUNT = 2 || sleep 60`
	out, errs, code := runLocal(t, dir, patience, "torchrun", "--nproc_per_node=2", "--max-restarts", "2", "--role", "trainer", "--no-python", "--log-dir", dir,
		"--redirects", "0:2", "sh", "-c", script, "x")
	if code != 0 {
		t.Fatalf("exit %d\n%s\n%s", code, out, errs)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(lines)
	var want []string
	for rank := range 2 {
		for restart := range 3 {
			want = append(want, fmt.Sprintf("rank %d of 2 restart %d role trainer arg x", rank, restart))
		}
	}
	if !slices.Equal(lines, want) {
		t.Errorf("stdout is\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if strings.Contains(errs, "error 0") || strings.Count(errs, "error 1") != 3 {
		t.Errorf("stderr of local rank 0 is redirected, that of 1 is not:\n%s", errs)
	}
	for attempt := range 3 {
		found, err := filepath.Glob(filepath.Join(dir, "none_*", fmt.Sprintf("attempt_%d", attempt), "0", "stderr.log"))
		if err != nil || len(found) != 1 {
			t.Fatalf("attempt %d: %v, %v", attempt, found, err)
		}
		if b, err := os.ReadFile(found[0]); err != nil || string(b) != "error 0\n" {
			t.Errorf("%s has %q, %v", found[0], b, err)
		}
	}
	_, errs, code = runLocal(t, dir, patience, "torchrun", "--nproc-per-node", "2", "--no-python", "sh", "-c", "test $RANK = 0 || exit 3; sleep 60")
	if code != 14 || !strings.Contains(errs, "first error: r1 on ") || strings.Contains(errs, "87600h") {
		t.Errorf("without --max-restarts the first failure ends the job: exit %d\n%s", code, errs)
	}
}

// TestTorchrunOnSeveralNodes: the node that has the endpoint's address serves the others; a lost
// one costs a restart, and all say how the job has ended. Without the node that serves them they
// end.
func TestTorchrunOnSeveralNodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		victim     int
		code       int
		message    string
		generation string // of the workers that end
	}{
		{"another node is lost", 2, 0, "✔ succeeded", "of 4, node "},
		{"the node that serves is lost", 0, 5, "the node that serves this run, at ", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			addresses, err := freeport.Addresses(1)
			if err != nil {
				t.Fatal(err)
			}
			// The group ends when the nodes are two: the third one has been killed.
			script := `echo "rank $RANK of $WORLD_SIZE, node $GROUP_RANK of $GROUP_WORLD_SIZE"; test $GROUP_WORLD_SIZE = 2 && exit 0; exec sleep 60`
			var nodes []*participant
			printed := func(what string) (n int) {
				for _, p := range nodes {
					n += strings.Count(p.text(), what)
				}
				return n
			}
			for i := range 3 {
				nodes = append(nodes, launchParticipant(t, fmt.Sprint("node ", i), "torchrun", "--state-dir", filepath.Join(dir, "state"), "--nnodes", "2:3",
					"--nproc-per-node", "2", "--max-restarts", "3", "--shutdown-timeout", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", addresses[0],
					"--rdzv-id", "several", "--rdzv-conf", "last_call_timeout=10,keep_alive_interval=2", "--local-addr", "127.0.0.1", "--no-python", "sh", "-c", script))
				if i == 0 { // the first one serves
					nodes[0].prints("waiting for 1 more node")
				}
			}
			eventually(t, patience, func() (bool, string) { return printed("of 6, node ") == 6, "three nodes do not come together" })
			nodes[c.victim].signal(syscall.SIGKILL)
			for i, p := range nodes {
				if i != c.victim {
					p.exits(patience, c.code)
					p.prints(c.message)
				}
			}
			if c.generation != "" && printed(c.generation) != 4 {
				t.Errorf("%d workers say %q, want 4", printed(c.generation), c.generation)
			}
		})
	}
}

// TestTorchrunNodeInterruptedTwice: the node kills its workers and leaves; the job goes on.
func TestTorchrunNodeInterruptedTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	addresses, err := freeport.Addresses(1)
	if err != nil {
		t.Fatal(err)
	}
	// Workers ignore SIGTERM, so that the second interrupt comes while the first is carried out.
	script := `trap '' TERM; echo "rank $RANK of $WORLD_SIZE"; test $WORLD_SIZE = 1 && exit 0; while :; do sleep 0.05; done`
	var nodes []*participant
	for i := range 2 {
		nodes = append(nodes, launchParticipant(t, fmt.Sprint("node ", i), "torchrun", "--state-dir", filepath.Join(dir, "state"), "--nnodes", "1:2",
			"--max-restarts", "3", "--shutdown-timeout", "5", "--rdzv-backend", "c10d", "--rdzv-endpoint", addresses[0], "--rdzv-id", "twice",
			"--rdzv-conf", "last_call_timeout=20", "--local-addr", "127.0.0.1", "--no-python", "sh", "-c", script))
		if i == 0 { // it serves
			nodes[0].prints("last call")
		}
	}
	nodes[1].prints("rank 1 of 2")
	before := len(nodes[0].text())
	nodes[1].signal(syscall.SIGINT)
	eventually(t, patience, func() (bool, string) {
		return strings.Contains(nodes[0].text()[before:], "round is complete with 1 node"), "the node that is left does not know that it is alone"
	})
	nodes[1].signal(syscall.SIGINT)
	nodes[1].exits(patience, 130)
	nodes[0].exits(patience, 0)
	nodes[0].prints("rank 0 of 1")
}

// TestSpares: workers that take the place of others are made of interpreters that wait, also in a
// job that recovers in the process; they end with the job.
func TestSpares(t *testing.T) {
	t.Parallel()
	const script = `import glob, os, sys, time
warm = "decimal" in sys.modules
restarted = int(os.environ["REGROUP_ATTEMPT"]) > 1 or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
print("restarted", restarted, "warm", warm, flush=True)

def spares():
    found = 0
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as f, open(os.path.dirname(path) + "/stat") as s:
                found += b"regroup_spare" in f.read() and int(s.read().rpartition(")")[2].split()[1]) == os.getppid()
        except OSError:
            pass
    return found

if not restarted:
    while spares() < 2:
        time.sleep(0.02)
    if os.environ["REGROUP_SLOT"] == "1":
        os.kill(os.getpid(), 9)
    time.sleep(60)
`
	for name, args := range map[string][]string{
		"restart":    {"run", "--workers", "2", "--max-restarts", "1"},
		"in-process": {"run", "--workers", "1:2", "--recovery", "in-process", "--max-restarts", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "script.py")
			if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			out, errs, _ := runLocal(t, dir, patience, append(args, "--spares", "2", "--preload", "decimal", "--", "/usr/bin/python3", file)...)
			want := map[string]int{"restarted False warm False": 2, "restarted True warm True": 2}
			if name == "in-process" { // the process that was killed is replaced, and ends: it is no member
				want["restarted True warm True"] = 1
			}
			for line, n := range want {
				if got := strings.Count(out, line); got != n {
					t.Errorf("%q is said %d times, want %d\n%s\n%s", line, got, n, out, errs)
				}
			}
			all, err := filepath.Glob("/proc/[0-9]*/environ")
			if err != nil || len(all) == 0 {
				t.Fatal(all, err)
			}
			for _, path := range all {
				if env, err := os.ReadFile(path); err == nil && bytes.Contains(env, []byte(dir)) {
					t.Errorf("%s of the job is left", path)
				}
			}
		})
	}
}
