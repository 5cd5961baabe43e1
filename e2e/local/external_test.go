package local

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/e2e/pytorch"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// participant is an agent that registers itself for a job, as started by a user or srun.
type participant struct {
	t       *testing.T
	name    string
	cmd     *exec.Cmd
	done    chan struct{}
	mu      sync.Mutex
	printed bytes.Buffer
}

func (c *participant) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.printed.Write(b)
}

func (c *participant) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.printed.String()
}

// startParticipant starts an agent that joins run with these flags and command; it ends with the
// test.
func (c *cluster) startParticipant(node, run string, args ...string) *participant {
	c.t.Helper()
	all := []string{"agent", "--server", c.url, "--node", node, "--advertise", "127.0.0.1", "--state-dir", filepath.Join(c.dir, node), "--join-job", run}
	return launchParticipant(c.t, node, append(all, args...)...)
}

// launchParticipant starts the binary; it ends with the test.
func launchParticipant(t *testing.T, name string, args ...string) *participant {
	t.Helper()
	a := &participant{t: t, name: name, done: make(chan struct{})}
	a.cmd = exec.Command(bin("regroup"), args...)
	a.cmd.Stdout, a.cmd.Stderr = a, a
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(a.done)
		_ = a.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-a.cmd.Process.Pid, syscall.SIGKILL)
		<-a.done
		if t.Failed() {
			t.Logf("--- %s ---\n%s", name, tail([]byte(a.text()), 3000))
		}
	})
	return a
}

// signal sends a signal to the agent only, which must stop its workers itself.
func (c *participant) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatalf("%s: %v", c.name, err)
	}
}

// exits waits for the end of the agent.
func (c *participant) exits(limit time.Duration, want int) {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(limit):
		c.t.Fatalf("%s still runs after %s", c.name, limit)
	}
	if got := c.cmd.ProcessState.ExitCode(); got != want {
		c.t.Errorf("%s exits %d, want %d", c.name, got, want)
	}
}

func (c *participant) prints(what string) {
	c.t.Helper()
	eventually(c.t, patience, func() (bool, string) {
		return strings.Contains(c.text(), what), fmt.Sprintf("%s does not say %q", c.name, what)
	})
}

// joined is the id of the job that agents with --join-job run create.
func joined(run string) ident.JobID { return ident.JobIDFrom(run, "/client/agent/join", "join-"+run) }

// world reports whether the newest generation makes steps, with exactly these nodes.
func world(nodes ...string) func(events.JobView) bool {
	return func(v events.JobView) bool {
		if len(v.Generations) == 0 {
			return false
		}
		g := v.Generations[len(v.Generations)-1]
		var have []string
		for _, m := range g.Members {
			have = append(have, string(m.Place.Node))
		}
		slices.Sort(have)
		return g.Ready && slices.Equal(have, nodes)
	}
}

// TestSelfRegisteredNodes runs a job without the scheduler. Two agents form it, a third is admitted
// at a commit, a fourth is a spare that replaces a killed one, one leaves without ending the job,
// and after the close no agent is admitted.
func TestSelfRegisteredNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.services(1)
	flags := append([]string{"--nnodes", "2:3", "--rdzv-conf", "last_call_timeout=1,join_timeout=60"}, counter(6000)...)
	job := joined("mnist")
	come := func(node string) *participant { return c.startParticipant(node, "mnist", flags...) }

	a := come("node-a")
	a.prints("waiting for 1 more node (1 of 2 to 3 nodes here)")
	b := come("node-b")
	v := c.until(job, patience, "two nodes step", world("node-a", "node-b"))
	pid := v.Generations[len(v.Generations)-1].Members[0].PID

	third := come("node-c")
	v = c.until(job, patience, "the third node steps, too", world("node-a", "node-b", "node-c"))
	g := v.Generations[len(v.Generations)-1]
	if g.Cause.Kind != events.CauseGrow || g.Members[0].PID != pid {
		t.Errorf("the third node came in by %s, rank 0 is process %d, was %d; want a planned change that keeps processes", g.Cause.Kind, g.Members[0].PID, pid)
	}

	spare := come("node-d")
	spare.prints("this node is a spare")
	killed := time.Now()
	b.signal(syscall.SIGKILL)
	c.until(job, patience, "the spare has taken the dead one's place", world("node-a", "node-c", "node-d"))
	t.Logf("killed to stepping with the spare: %s", time.Since(killed).Round(time.Millisecond))

	third.signal(syscall.SIGTERM)
	third.exits(patience, 130)
	third.prints("this node has left; the job goes on without it")
	v = c.until(job, patience, "the others go on without the one that left", world("node-a", "node-d"))
	if g := v.Generations[len(v.Generations)-1]; g.Cause.Kind != events.CauseShrink {
		t.Errorf("the node that left cost a generation by %s, want a planned change", g.Cause.Kind)
	}

	other := c.startParticipant("node-e", "mnist", append([]string{"--nnodes", "2:4"}, counter(6000)...)...)
	other.exits(patience, 4)
	other.prints("rendezvous.nodes.max: is 4 here, the job has 3")

	if out, errs, code := c.cli("close", string(job), "--reason", "enough"); code != 0 {
		t.Fatalf("close exits %d: %s%s", code, out, errs)
	}
	late := come("node-f")
	late.exits(patience, 4)
	late.prints("takes no nodes: the rendezvous is closed: enough")

	c.ends(job, 3*time.Minute)
	a.exits(patience, 0)
	spare.exits(patience, 0)
	a.prints("succeeded")

	again := come("node-a")
	again.exits(patience, 4)
	again.prints("has ended already: give another --join-job")
}

// TestNodesThatJoinTooLate checks that an agent that waits alone fails after the join timeout, and
// that a stop ends waiting agents.
func TestNodesThatJoinTooLate(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.services(1)
	alone := c.startParticipant("node-a", "alone", append([]string{"--nnodes", "2", "--rdzv-conf", "join_timeout=1"}, counter(10)...)...)
	alone.exits(patience, 12)
	alone.prints("waited 1s: 1 of the 2 nodes came")

	first := c.startParticipant("node-b", "stopped", append([]string{"--nnodes", "2:2"}, counter(10)...)...)
	first.prints("waiting for 1 more node")
	if _, errs, code := c.cli("stop", string(joined("stopped"))); code != 0 {
		t.Fatalf("stop exits %d: %s", code, errs)
	}
	first.exits(patience, 11)
}

// TestTorchScriptOfSelfRegisteredNodes starts an unmodified torch.distributed script on two nodes
// as torchrun does. One process kills itself; the group is restarted once and ends.
func TestTorchScriptOfSelfRegisteredNodes(t *testing.T) {
	t.Parallel()
	python := pytorch.Python(t)
	script, err := filepath.Abs("testdata/ddp.py")
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	c.services(1)
	var agents []*participant
	for _, n := range []string{"node-a", "node-b"} {
		agents = append(agents, c.startParticipant(n, "ddp", "--nnodes", "2", "--nproc_per_node", "1", "--max-restarts", "3", "--",
			python, script, filepath.Join(c.dir, "ckpt.pt"), "40", "12"))
	}
	printed := ""
	for _, a := range agents {
		a.exits(10*time.Minute, 0)
		printed += a.text()
	}
	if n := strings.Count(printed, "began at 13"); n != 2 {
		t.Errorf("%d ranks say that they began at step 13, want both\n%s", n, printed)
	}
	if v := c.job(joined("ddp")); v.State != events.JobStateSucceeded || v.Generation != 2 {
		t.Errorf("job %s in %s, want succeeded in g2", v.State, v.Generation)
	}
}
