package local

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/tables"
)

// TestANodeIsTakenAwayWithNotice checks that a notice (by signal, file or the agent's socket) or a
// SIGTERM to the agent moves its work to another node at a commit. No failure is counted, no step
// and no sample is lost, and the agent leaves by itself.
func TestANodeIsTakenAwayWithNotice(t *testing.T) {
	t.Parallel()
	for name, notice := range map[string]func(c *cluster, file string) error{
		"signal": func(c *cluster, _ string) error { return c.signal("node-b", syscall.SIGUSR1) },
		"file":   func(_ *cluster, file string) error { return os.WriteFile(file, nil, 0o600) },
		"socket": func(c *cluster, _ string) error {
			return post(filepath.Join(c.dir, "node-b", "agents", "node-b", "agent.sock"))
		},
		"term": func(c *cluster, _ string) error { return c.signal("node-b", syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.services(1)
			file := filepath.Join(c.dir, "preempted")
			c.agent("node-a", 1)
			c.agent("node-b", 1, "--preempt-file", file)
			job := c.submit(append([]string{"--workers", "2:2", "--max-restarts", "0"}, c.counts(300)...)...)
			c.until(job, patience, "its first generation steps", steps)
			c.agent("node-c", 1)
			c.nodes(patience, "node-a", "node-b", "node-c")
			if err := notice(c, file); err != nil {
				t.Fatal(err)
			}
			v := c.until(job, patience, "it trains on the other node", func(v events.JobView) bool {
				g := v.Generations[len(v.Generations)-1]
				return g.Ready && slices.ContainsFunc(g.Members, func(m tables.Member) bool { return m.Place.Node == "node-c" })
			})
			if len(v.Failures) > 0 {
				t.Errorf("counted: %+v", v.CountedFailures)
			}
			eventually(t, patience, func() (bool, string) { return !c.procs.Running("node-b"), "the agent has not left" })
			c.ends(job, patience)
			for _, e := range facts(t, c, job) {
				if b, ok := e.Body.(events.IncidentClosed); ok && (!b.Cause.Kind.Planned() || b.StepsLost == nil || *b.StepsLost != 0) {
					t.Errorf("incident %d: %s %s, or steps were lost; want planned changes and none", b.Incident, b.Cause.Kind, b.Cause.Detail)
				}
			}
			view := c.node("node-b")
			if view.State != events.NodeStateLeft || view.Departing == nil {
				t.Errorf("node-b is %s (%s), departing %+v", view.State, view.Reason, view.Departing)
			}
		})
	}
}

// TestANodeThatNobodyCanReplaceTrainsOnUntilItIsKilled checks that its loss is not counted as a
// failure.
func TestANodeThatNobodyCanReplaceTrainsOnUntilItIsKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.services(1)
	c.agent("node-a", 1)
	c.agent("node-b", 1)
	job := c.submit(append([]string{"--workers", "2:2", "--max-restarts", "0"}, c.counts(300)...)...)
	c.until(job, patience, "its first generation steps", steps)
	if err := c.signal("node-b", syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() (bool, string) {
		v := c.node("node-b")
		return v.Draining && strings.Contains(v.Reason, "preempted"), "node-b is " + v.Reason
	})
	before := c.job(job).Step
	c.until(job, patience, "it trains on", func(v events.JobView) bool { return v.State == events.JobStateRunning && v.Step >= before })
	c.kill("node-b")
	c.agent("node-c", 1)
	v := c.until(job, patience, "it trains on the other node", func(v events.JobView) bool {
		g := v.Generations[len(v.Generations)-1]
		return g.Ready && slices.ContainsFunc(g.Members, func(m tables.Member) bool { return m.Place.Node == "node-c" })
	})
	if len(v.Failures) > 0 {
		t.Errorf("counted: %+v", v.CountedFailures)
	}
	c.ends(job, patience)
}

// signal sends a signal to one process, not to its group.
func (c *cluster) signal(name string, s syscall.Signal) error {
	pid := c.procs.PID(name)
	return syscall.Kill(pid, s)
}

// post sends a notice as curl --unix-socket does.
func post(socket string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	res, err := client.Post("http://agent/v1/preempt", "application/json", nil)
	if err != nil {
		return err
	}
	return res.Body.Close()
}
