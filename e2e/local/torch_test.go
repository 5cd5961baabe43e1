package local

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/e2e/pytorch"
)

// TestTorchScript runs an unmodified torch.distributed script under `regroup run` with torch's own
// store; one of its processes kills itself, the group is restarted once and ends.
func TestTorchScript(t *testing.T) {
	t.Parallel()
	python := pytorch.Python(t)
	script, err := filepath.Abs("testdata/ddp.py")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out, errs, code := runLocal(t, dir, 20*time.Minute, "run", "--name", "ddp", "--workers", "2", "--max-restarts", "3", "-o", "json", "--",
		python, script, filepath.Join(dir, "ckpt.pt"), "40", "12")
	if code != 0 {
		t.Fatalf("exit %d\n%s\n%s", code, out, errs)
	}
	s := parseSummary(t, out)
	if s.Outcome != "succeeded" || len(s.Generations) != 2 {
		t.Fatalf("outcome %s after %d generations, want succeeded after 2\n%s", s.Outcome, len(s.Generations), errs)
	}
	if n := strings.Count(errs, "began at 13"); n != 2 {
		t.Errorf("%d ranks say that they began at step 13, want both\n%s", n, errs)
	}
}
