package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
)

// TestAJobThatLosesAllWorkersGoesOnFromItsCheckpoint though nobody asked for any: the agent keeps
// them until the job ends.
func TestAJobThatLosesAllWorkersGoesOnFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.services(1)
	c.agent("node-a", 2)
	id := c.submit(append([]string{"--workers", "2:2", "--env", "REGROUP_CHECKPOINT_EVERY=50ms"}, counter(1500)...)...)
	folder := filepath.Join(c.dir, "node-a", "agents", "node-a", "checkpoints", string(id))
	written := func() []string {
		all, err := filepath.Glob(filepath.Join(folder, "*.checkpoint"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	eventually(t, time.Minute, func() (bool, string) { return len(written()) > 0, "there is a checkpoint in " + folder })
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	killed := 0
	for _, g := range c.summary(id).Generations {
		for _, m := range g.Members {
			killPID(t, m.PID)
			killed++
		}
	}
	if killed != 2 {
		t.Fatalf("%d workers were killed, want 2", killed)
	}
	c.until(id, time.Minute, "it has lost both", func(v events.JobView) bool { return v.Generation > 1 })
	c.ends(id, time.Minute)
	out, errs, code := c.cli("events", string(id))
	if code != 0 || !strings.Contains(out, "from the checkpoint of step ") {
		t.Errorf("events exits %d and does not say where it went on:\n%s%s", code, out, errs)
	}
	eventually(t, time.Minute, func() (bool, string) {
		_, err := os.Stat(folder)
		return os.IsNotExist(err), folder + " is removed with its job"
	})
}
