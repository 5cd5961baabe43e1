package proc

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/ident"
)

// stranger is a user that the machine need not know.
var stranger = &worker.Account{Name: "stranger", UID: 54321, GID: 54322, Groups: []uint32{54323}, Home: "/nonexistent"}

// needsRoot fails a test that starts processes as another user.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test starts processes as another user: run it as root, as those of the network")
	}
}

// TestAWorkerIsAnotherUser: with the groups of that user and none of the agent's, without its
// environment, its files and a way back.
func TestAWorkerIsAnotherUser(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	r := newRig(t, Options{Environ: []string{"PATH=" + os.Getenv("PATH"), "AWS_SECRET_ACCESS_KEY=agents", "HOME=/root", "LANG=C"}})
	mine := filepath.Join(t.TempDir(), "mine")
	if err := os.WriteFile(mine, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := `id -u; id -g; id -G; echo by name > /dev/stderr; echo by name > /dev/stdout; grep -E '^(NoNewPrivs|CapEff)' /proc/self/status; env | sort; pwd
cat ` + mine + ` 2>/dev/null && echo read a file of the agent
cat /proc/$PPID/environ 2>/dev/null && echo read the environment of the agent
cat ` + r.d.opt.StateDir + `/workers/* 2>/dev/null && echo read the state of the agent; exit 0`
	r.startWith(worker.StartProcess{Worker: r.id, Command: []string{"sh", "-c", script}, Env: map[string]string{"REGROUP_INCARNATION": string(r.id)}, Account: stranger})
	next[worker.ProcessStarted](r)
	next[worker.ProcessExited](r)
	got := r.output()
	ids := slices.DeleteFunc(slices.Clone(got), func(line string) bool { return line == "by name" }) // one of them is of stderr, and may come anywhere
	if len(ids) < 3 || ids[0] != "54321" || ids[1] != "54322" || ids[2] != "54322 54323" {
		t.Fatalf("output %q", got)
	}
	for _, want := range []string{"NoNewPrivs:\t1", "CapEff:\t0000000000000000", "by name", "HOME=/nonexistent", "USER=stranger", "LANG=C", "/"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	for _, line := range got {
		if strings.Contains(line, "AWS") || strings.Contains(line, "read ") {
			t.Errorf("it has got %q", line)
		}
	}
}

// TestNoWorkerGainsPrivileges: also one of the agent's own user.
func TestNoWorkerGainsPrivileges(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.start("grep", "NoNewPrivs", "/proc/self/status")
	next[worker.ProcessStarted](r)
	next[worker.ProcessExited](r)
	if got := r.output(); !slices.Equal(got, []string{"NoNewPrivs:\t1"}) {
		t.Errorf("output %q", got)
	}
}

// TestSecretsOfAnotherUserAreReadWithItsAccess: a job cannot have the agent read what its user may
// not.
func TestSecretsOfAnotherUserAreReadWithItsAccess(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	dir, err := os.MkdirTemp("/tmp", "regroup-test-") //nolint:usetesting // t.TempDir is in a directory that is closed to others
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	file := func(name string, uid, gid int, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("s3cr3t"), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, uid, gid); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for path, legal := range map[string]bool{
		file("root's", 0, 0, 0o600): false, file("its own", int(stranger.UID), 0, 0o600): true, file("another's", 1, 1, 0o660): false,
		file("of its group", 0, int(stranger.GID), 0o640): true, file("of a further group", 0, int(stranger.Groups[0]), 0o640): true,
		file("of root's group", 0, 0, 0o640): false,
	} {
		r := newRig(t, Options{})
		r.id += ident.Incarnation("-" + filepath.Base(path)) // or the sweep after one would find the next
		r.startWith(worker.StartProcess{
			Worker: r.id, Command: []string{"sh", "-c", `echo "${#KEY}"`}, Env: map[string]string{"REGROUP_INCARNATION": string(r.id)},
			Secrets: map[string]string{"KEY": "file:" + path}, Account: stranger,
		})
		if !legal {
			if x := next[worker.ProcessFailedToStart](r); !strings.Contains(x.Detail, "permission denied") {
				t.Errorf("%s: %+v", path, x)
			}
			continue
		}
		next[worker.ProcessStarted](r)
		if next[worker.ProcessExited](r); !slices.Equal(r.output(), []string{"6"}) {
			t.Errorf("%s: %q", path, r.output())
		}
	}
	// The thread is root's again, for the next worker.
	r := newRig(t, Options{})
	for _, who := range []*worker.Account{stranger, nil} {
		r.id += "-next" // or the sweep after the first would find the second
		r.startWith(worker.StartProcess{
			Worker: r.id, Command: []string{"id", "-u"}, Env: map[string]string{"REGROUP_INCARNATION": string(r.id)},
			Secrets: map[string]string{"KEY": "file:" + filepath.Join(dir, "of its group")}, Account: who,
		})
		next[worker.ProcessStarted](r)
		next[worker.ProcessExited](r)
	}
	if got := r.output(); !slices.Equal(got, []string{"54321", "0"}) {
		t.Errorf("the users were %q", got)
	}
}

// TestAProgramThatItsUserMayNotExecute: the error says so.
func TestAProgramThatItsUserMayNotExecute(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	r := newRig(t, Options{})
	r.startWith(worker.StartProcess{
		Worker: r.id, Command: []string{"true"}, Dir: r.d.opt.StateDir, Env: map[string]string{"REGROUP_INCARNATION": string(r.id)}, Account: stranger,
	})
	if x := next[worker.ProcessFailedToStart](r); !strings.Contains(x.Detail, "user stranger may not execute true in ") {
		t.Errorf("%+v", x)
	}
}

// TestWhatAnotherUserHasLeftIsKilled: like TestDetachedChildEndsWithItsWorker, as another user.
func TestWhatAnotherUserHasLeftIsKilled(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	r := newRig(t, Options{})
	r.startWith(worker.StartProcess{
		Worker: r.id, Command: []string{"sh", "-c", `echo $(env -i setsid sh -c 'echo $$; exec sleep 1000 > /dev/null 2>&1' &)`},
		Env: map[string]string{"REGROUP_INCARNATION": string(r.id), "PATH": os.Getenv("PATH")}, Account: stranger,
	})
	next[worker.ProcessStarted](r)
	next[worker.ProcessExited](r)
	pid := pidLine(t, r)
	until(t, "the daemon ends", func() bool { return !runs(pid) })
}
