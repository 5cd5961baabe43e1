package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// TestScaleAndDrain grows, shrinks and moves a training job. No change counts as a failure, nothing
// is lost, and the state moves even when no worker stays.
func TestScaleAndDrain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.services(1)
	c.agent("node-a", 4)
	job := c.submit(append([]string{"--workers", "2:2", "--max-restarts", "0"}, c.counts(500)...)...)
	ready := func(what string, world int, node string) {
		t.Helper()
		c.until(job, patience, what, func(v events.JobView) bool {
			if len(v.Generations) == 0 {
				return false
			}
			g := v.Generations[len(v.Generations)-1]
			if !g.Ready || g.World != world {
				return false
			}
			for _, m := range g.Members {
				if m.Place.Node != ident.NodeID(node) {
					return false
				}
			}
			return true
		})
	}
	must := func(args ...string) {
		t.Helper()
		if _, errs, code := c.cli(args...); code != 0 {
			t.Fatalf("%v exits %d: %s", args, code, errs)
		}
	}
	ready("two workers train", 2, "node-a")
	must("scale", string(job), "2:4")
	ready("four workers train", 4, "node-a")
	must("scale", string(job), "1:2")
	ready("two workers train again", 2, "node-a")
	c.agent("node-b", 2)
	must("node", "drain", "node-a")
	ready("it trains on the other node", 2, "node-b")
	c.ends(job, patience)
	last := uint64(0)
	for _, e := range facts(t, c, job) {
		switch b := e.Body.(type) {
		case events.WorkerReady:
			if b.Rank == 0 {
				if b.Step < last {
					t.Errorf("%s begins at step %d, the one before had begun at %d: its state was lost", b.Generation, b.Step, last)
				}
				last = b.Step
			}
		case events.IncidentClosed:
			if !b.Cause.Kind.Planned() || b.StepsLost == nil || *b.StepsLost != 0 {
				t.Errorf("incident %d: %s, or steps were lost; want planned changes and none", b.Incident, b.Cause.Kind)
			}
		}
	}
}

// TestAGangBelowMinWaitsInTheQueue: a job that recovers by restart and has lost places to a drain
// has no process below its min. A younger job that fits into what is left does not wait for it, and
// it goes on when its node is back.
func TestAGangBelowMinWaitsInTheQueue(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.services(1)
	c.agent("node-a", 2)
	c.agent("node-b", 2)
	may := filepath.Join(c.dir, "may-end")
	one := c.submit("--name", "one", "--workers", "4", "--", "sh", "-c", "until test -e "+may+"; do sleep 0.1; done")
	c.until(one, patience, "it runs on both nodes", steps)
	two := c.submit("--name", "two", "--workers", "2", "--", "true")
	if _, errs, code := c.cli("node", "drain", "node-b"); code != 0 {
		t.Fatal(errs)
	}
	c.ends(two, patience)
	if v := c.job(one); v.State.Terminal() {
		t.Fatalf("one is %s (%s), and must wait", v.State, v.Reason)
	}
	if err := os.WriteFile(may, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := c.cli("node", "drain", "node-b", "--undo"); code != 0 {
		t.Fatal(errs)
	}
	c.ends(one, patience)
}
