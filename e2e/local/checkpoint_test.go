package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/regroup-io/regroup/events"
)

// TestAJobThatLosesAllWorkersGoesOnFromItsCheckpoint though nobody asked for any: the agent keeps
// them until the job ends.
func TestAJobThatLosesAllWorkersGoesOnFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.services(1)
	c.agent("node-a", 2)
	goesOnFromItsCheckpoint(c, filepath.Join(c.dir, "node-a", "agents", "node-a", "regroup-checkpoints"), os.Geteuid(), bin("counter"))
}

// TestCheckpointsOfWorkersOfAnotherUser are that user's, in a folder that it can enter.
func TestCheckpointsOfWorkersOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("this test has workers of another user: run it as root, as those of the network")
	}
	open := t.TempDir()
	for _, dir := range []string{open, filepath.Dir(open)} {
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // others must get through
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(bin("counter"))
	if err == nil {
		err = os.WriteFile(filepath.Join(open, "counter"), program, 0o755) //nolint:gosec // others must run it
	}
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	c.services(1)
	c.agent("node-a", 2, "--default-user", "54321:54322", "--checkpoints", open)
	goesOnFromItsCheckpoint(c, filepath.Join(open, "regroup-checkpoints"), 54321, filepath.Join(open, "counter"))
}

// goesOnFromItsCheckpoint kills all workers of a job that has written a checkpoint into the folder
// of the agent, which belongs to a user.
func goesOnFromItsCheckpoint(c *cluster, kept string, uid int, program string) {
	t := c.t
	t.Helper()
	id := c.submit(
		"--workers", "2:2", "--recovery", "in-process", "--env", "REGROUP_CHECKPOINT_EVERY=50ms", "--",
		program, "-steps", "1500", "-step-time", "5ms", "-samples", "6000", "-batch", "60",
	)
	members := c.until(id, patience, "its first generation steps", steps).Generations[0].Members
	folder := filepath.Join(kept, string(id))
	eventually(t, patience, func() (bool, string) {
		all, err := filepath.Glob(filepath.Join(folder, "*.checkpoint"))
		return len(all) > 0, fmt.Sprintf("there is a checkpoint in %s: %v", folder, err)
	})
	info, err := os.Stat(folder)
	if err != nil || len(members) != 2 {
		t.Fatalf("%d workers: %v", len(members), err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != uid || info.Mode().Perm() != 0o700 {
		t.Errorf("%s belongs to %+v with mode %s", folder, owner, info.Mode())
	}
	for _, m := range members {
		killPID(t, m.PID)
	}
	c.until(id, patience, "it has lost both", func(v events.JobView) bool { return v.Generation > 1 })
	c.ends(id, patience)
	out, errs, code := c.cli("events", string(id))
	if code != 0 || !strings.Contains(out, "from the checkpoint of step ") {
		t.Errorf("events exits %d and does not say where it went on:\n%s%s", code, out, errs)
	}
	eventually(t, patience, func() (bool, string) {
		_, err := os.Stat(folder)
		return os.IsNotExist(err), folder + " is removed with its job"
	})
}
