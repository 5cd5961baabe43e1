package local

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
)

// TestRemove checks that a running job is only removed by force, and that nothing of it is left but
// the id of its submit event; other jobs continue.
func TestRemove(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.services(2)
	c.agent("node-a", 2)
	job := c.submit("--workers", "1", "--", "sleep", "600")
	c.until(job, patience, "it runs", func(v events.JobView) bool { return v.State == events.JobStateRunning })
	if _, errs, code := c.cli("rm", string(job)); code != 2 || !strings.Contains(errs, "stop it first") {
		t.Errorf("rm of a running job: exit %d, %s", code, errs)
	}
	if _, errs, code := c.cli("rm", string(job), "--force"); code != 0 {
		t.Errorf("rm --force: exit %d, %s", code, errs)
	}
	eventually(t, patience, func() (bool, string) {
		all, err := document.All[events.RoundView](t.Context(), c.ports.Buckets.Bucket(events.BucketRounds))
		return err == nil && len(all) == 0, "the rounds bucket has keys"
	})
	if v := c.job(job); v.State != "" || len(v.Workers) > 0 {
		t.Errorf("left on record: %+v", v)
	}
	if out, _, code := c.cli("ls", "-o", "name"); code != 0 || out != "" {
		t.Errorf("ls: exit %d, %s", code, out)
	}
	for _, line := range []string{"status", "stop", "rm", "wait", "logs"} {
		if _, errs, code := c.cli(line, string(job)); code != 3 {
			t.Errorf("%s: exit %d, want 3: %s", line, code, errs)
		}
	}
	next := c.submit("--workers", "2", "--", "true")
	if _, errs, code := c.cli("wait", string(next), "--timeout", "1m"); code != 0 {
		t.Errorf("wait: exit %d, %s", code, errs)
	}
	if _, errs, code := c.cli("rm", "--ended"); code != 0 || !strings.Contains(errs, "1 job removed") {
		t.Errorf("rm --ended: exit %d, %s", code, errs)
	}
}

// TestRemoveWithNobodyRunning removes the jobs of ended and killed runs without a server.
func TestRemoveWithNobodyRunning(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 2 {
		if _, errs, code := runLocal(t, dir, patience, "run", "--name", "ended", "--", "true"); code != 0 {
			t.Fatalf("run: exit %d, %s", code, errs)
		}
	}
	killed := exec.Command(bin("regroup"), "run", "--state-dir", filepath.Join(dir, "state"), "--name", "killed", "--", "sh", "-c", "echo begun; exec sleep 600")
	out, err := killed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Error(err)
	}
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait() // it was killed
	if _, errs, code := runLocal(t, dir, patience, "rm", "killed"); code != 0 || !strings.Contains(errs, "is removed") {
		t.Errorf("rm of a killed run: exit %d, %s", code, errs)
	}
	if _, errs, code := runLocal(t, dir, patience, "rm", "--ended"); code != 0 || !strings.Contains(errs, "2 jobs removed") {
		t.Errorf("rm --ended: exit %d, %s", code, errs)
	}
	if out, errs, code := runLocal(t, dir, patience, "ls", "-o", "name"); code != 0 || out != "" {
		t.Errorf("ls: exit %d, %s%s", code, out, errs)
	}
}
