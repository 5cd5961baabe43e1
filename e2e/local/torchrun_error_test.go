package local

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/internal/freeport"
)

// TestTorchrunShowsTheCause: of two ranks that fail 100 ms apart on two nodes, both nodes show the
// first one's exception, and where it was raised, though it is the last one to end. The order is
// that of tracebacks, or of error files.
func TestTorchrunShowsTheCause(t *testing.T) {
	t.Setenv("PYTHON_EXEC", "/usr/bin/python3")
	for name, line := range map[string]int{"two_errors": 30, "two_error_files": 16} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			script, err := filepath.Abs("testdata/" + name + ".py")
			if err != nil {
				t.Fatal(err)
			}
			addresses, err := freeport.Addresses(1)
			if err != nil {
				t.Fatal(err)
			}
			node := func(rank int) *participant {
				return launchParticipant(t, fmt.Sprint("node ", rank), "torchrun", "--state-dir", filepath.Join(dir, "state"), "--nnodes", "2",
					"--shutdown-timeout", "5", "--rdzv-backend", "c10d", "--rdzv-endpoint", addresses[0], "--rdzv-id", "errors",
					"--rdzv-conf", "last_call_timeout=2", "--local-addr", "127.0.0.1", script, dir)
			}
			first := node(0)
			first.prints("waiting for 1 more node")
			nodes := []*participant{first, node(1)}
			for i, p := range nodes {
				p.exits(patience, 14)
				_, box, shown := strings.Cut(p.text(), "first error: r1 on ")
				if !shown {
					t.Errorf("node %d shows no first error of rank 1:\n%s", i, p.text())
					continue
				}
				for _, want := range []string{"ValueError: the cause", fmt.Sprintf("%s.py:%d in train", name, line)} {
					if !strings.Contains(box, want) {
						t.Errorf("node %d: the box lacks %q:\n%s", i, want, box)
					}
				}
			}
		})
	}
}

// TestRunShowsTheCause: so does `regroup run`, on one machine.
func TestRunShowsTheCause(t *testing.T) {
	script, err := filepath.Abs("testdata/two_errors.py")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, errs, code := runLocal(t, dir, patience, "run", "--workers", "2", "--recovery", "restart", "--max-restarts", "0", "--", "/usr/bin/python3", script, dir)
	_, box, shown := strings.Cut(errs, "first error: r1 on ")
	if code != 14 || !shown || !strings.Contains(box, "ValueError: the cause") {
		t.Errorf("exit %d, want 14 and the first error of rank 1:\n%s", code, errs)
	}
}

// TestErrorFilesAreInTheLogDir: torchrun's place, of each attempt, also while the worker runs. They
// are shown as without --log-dir, where they are removed.
func TestErrorFilesAreInTheLogDir(t *testing.T) {
	dir := t.TempDir()
	script := `test $RANK = 1 || exec sleep 60
printf '{"message": "attempt %s says why"}' $TORCHELASTIC_RESTART_COUNT > "$TORCHELASTIC_ERROR_FILE"
echo "in $TORCHELASTIC_ERROR_FILE"; exit 3`
	for _, logs := range []string{"logs", ""} {
		out, errs, code := runLocal(t, dir, patience, "torchrun", "--nproc-per-node", "2", "--max-restarts", "1", "--log-dir", logs, "--no-python", "sh", "-c", script)
		if code != 14 || !strings.Contains(errs, "attempt 0 says why") {
			t.Fatalf("exit %d\n%s\n%s", code, out, errs)
		}
		for attempt := range 2 {
			found, err := filepath.Glob(filepath.Join(dir, "logs", "none_*", fmt.Sprintf("attempt_%d", attempt), "1", "error.json"))
			if err != nil || len(found) != 1 {
				t.Fatalf("attempt %d: %v, %v", attempt, found, err)
			}
			if text, err := os.ReadFile(found[0]); err != nil || string(text) != fmt.Sprintf(`{"message": "attempt %d says why"}`, attempt) {
				t.Errorf("%s has %q, %v", found[0], text, err)
			}
			if logs != "" && !strings.Contains(out, "in "+found[0]+"\n") {
				t.Errorf("the worker writes to another file than %s:\n%s", found[0], out)
			}
		}
		for line := range strings.Lines(out) {
			file, is := strings.CutPrefix(strings.TrimSpace(line), "in ")
			if _, err := os.Stat(file); is && logs == "" && !os.IsNotExist(err) {
				t.Errorf("%s is left: %v", file, err)
			}
		}
	}
}

// TestTheLauncherPassesTheErrorOn: torchrun is a program of @record itself, and leaves the error of
// the worker that failed first in the file that its own launcher has named.
func TestTheLauncherPassesTheErrorOn(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "own.json")
	t.Setenv("TORCHELASTIC_ERROR_FILE", own)
	script := `test "$TORCHELASTIC_ERROR_FILE" != ` + own + ` || exit 9
test $RANK = 1 || exec sleep 60
printf '{"message": {"message": "ValueError: the cause", "extraInfo": {"py_callstack": "Traceback", "timestamp": "1700000000"}}}' > "$TORCHELASTIC_ERROR_FILE"
exit 3`
	_, errs, code := runLocal(t, dir, patience, "torchrun", "--nproc-per-node", "2", "--no-python", "sh", "-c", script)
	var printed struct {
		Message struct {
			Message string         `json:"message"`
			Extra   map[string]any `json:"extraInfo"`
		} `json:"message"`
	}
	b, err := os.ReadFile(own)
	if err == nil {
		err = json.Unmarshal(b, &printed)
	}
	if code != 14 || err != nil || !strings.HasPrefix(printed.Message.Message, "ValueError: the cause") || printed.Message.Extra["timestamp"] == "" {
		t.Errorf("exit %d, %v, the file has %s\n%s", code, err, b, errs)
	}
}
