package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// TestANameInUseIsNotTakenOver starts agents of the name that the agent of a cluster has: with
// other state directories they end neither that agent nor its workers.
func TestANameInUseIsNotTakenOver(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	name := ident.NodeIDFrom(host)
	c := newCluster(t)
	c.services(1)
	c.agent(string(name), 1)
	job := c.submit("--workers", "1:1", "--", "sleep", "1000")
	v := c.until(job, patience, "it runs", func(v events.JobView) bool { return len(v.Workers) == 1 && v.Workers[0].PID > 0 })
	worker, agent := processOf(v.Workers[0].PID), c.node(name).Incarnation

	run := launchParticipant(t, "torchrun", "torchrun", "--server", c.url, "--state-dir", filepath.Join(c.dir, "user"),
		"--nnodes", "1", "--nproc-per-node", "1", "--rdzv-id", "beside", "--local-addr", "127.0.0.1", "--no-python", "sh", "-c", "echo node $REGROUP_NODE")
	run.exits(patience, 0)
	run.prints("node " + string(name) + "-2")

	join := launchParticipant(t, "join-job", "agent", "--server", c.url, "--state-dir", filepath.Join(c.dir, "other"), "--node", string(name),
		"--join-job", "third", "--nnodes", "1", "--", "true")
	join.exits(patience, 4)
	join.prints("has a living agent")
	if out, _, code := c.cli("ls", "--all"); code != 0 || !strings.Contains(out, "beside") || strings.Contains(out, "third") {
		t.Errorf("ls exits %d, and must know the run and not the refused job:\n%s", code, out)
	}
	if n := c.node(name); n.Incarnation != agent || n.State != events.NodeStateReady {
		t.Errorf("the node is %s, of %s, want %s", n.State, n.Incarnation, agent)
	}
	if !worker.alive() {
		t.Error("the worker of the first agent has ended")
	}
	if _, errs, code := c.cli("stop", "--now", string(job)); code != 0 {
		t.Errorf("stop exits %d: %s", code, errs)
	}
}
