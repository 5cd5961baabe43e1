package local

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/internal/freeport"
)

// TestTorchrunShowsTheCause: of two ranks that fail 100 ms apart on two nodes, both nodes show the
// first one's exception, and where it was raised, though it is the last one to end. The order is
// that of tracebacks, or of error files.
func TestTorchrunShowsTheCause(t *testing.T) {
	t.Setenv("PYTHON_EXEC", "/usr/bin/python3")
	for name, line := range map[string]int{"two_errors": 21, "two_error_files": 16} {
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
			first.says("waiting for 1 more node")
			nodes := []*participant{first, node(1)}
			for i, p := range nodes {
				p.exits(time.Minute, 14)
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
	_, errs, code := runLocal(t, dir, time.Minute, "run", "--workers", "2", "--recovery", "restart", "--max-restarts", "0", "--", "/usr/bin/python3", script, dir)
	_, box, shown := strings.Cut(errs, "first error: r1 on ")
	if code != 14 || !shown || !strings.Contains(box, "ValueError: the cause") {
		t.Errorf("exit %d, want 14 and the first error of rank 1:\n%s", code, errs)
	}
}
