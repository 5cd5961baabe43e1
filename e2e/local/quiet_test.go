package local

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestQuiet checks that informational logs do not reach a user's terminal by default: neither the
// SDK's nor the broker's, also if the store was not closed properly.
func TestQuiet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	job := []string{"--recovery", "in-process", "--workers", "2", "--", bin("counter"), "-steps", "20", "-samples", "600", "-batch", "30"}
	out, errs, code := runLocal(t, dir, patience, append([]string{"run"}, job...)...)
	if code != 0 || strings.Contains(out+errs, "level=") || !strings.Contains(out, "done: step 20") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	out, errs, code = runLocal(t, dir, patience, append([]string{"run", "-v"}, job...)...)
	if code != 0 || !strings.Contains(out, `level=INFO msg="generation begins"`) {
		t.Errorf("-v: exit %d\n%s%s", code, out, errs)
	}
	out, errs, code = runLocal(t, dir, patience, append([]string{"run", "-v", "--env", "REGROUP_LOG_LEVEL=error"}, job...)...)
	if code != 0 || strings.Contains(out, "level=INFO") {
		t.Errorf("the job says what its workers log: exit %d\n%s%s", code, out, errs)
	}

	pids := filepath.Join(dir, "pids")
	killed := exec.Command(bin("regroup"), "run", "--state-dir", filepath.Join(dir, "state"), "--", "sh", "-c", "echo $$ >"+pids+"; exec sleep 600")
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() (bool, string) {
		b, _ := os.ReadFile(pids)
		return len(b) > 0, "the worker has not started"
	})
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait() // it was killed
	out, errs, code = runLocal(t, dir, patience, "run", "--", "true")
	if code != 0 || strings.Contains(out+errs, "level=INFO") || strings.Contains(out+errs, "Filestore") {
		t.Errorf("after a kill: exit %d\n%s%s", code, out, errs)
	}
}
