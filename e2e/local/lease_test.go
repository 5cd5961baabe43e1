package local

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/regroup-io/regroup/e2e/writers"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// TestOneWriterOfARank loses nodes whose workers live on: each rank of a job that is restarted as a
// group has one writer at any time, as a file shows that all write.
func TestOneWriterOfARank(t *testing.T) {
	for name, c := range map[string]struct {
		guarded bool
		lose    func(c *cluster, way *proxy)
		back    func(c *cluster, way *proxy)
	}{
		"the node is cut off": {
			lose: func(_ *cluster, way *proxy) { way.set(true) },
			back: func(_ *cluster, way *proxy) { way.set(false) },
		},
		"the agent is frozen": {
			lose: func(c *cluster, _ *proxy) { c.signalled("node-b", syscall.SIGSTOP) },
			back: func(c *cluster, _ *proxy) { c.signalled("node-b", syscall.SIGCONT) },
		},
		"the agent is killed": {
			lose: func(c *cluster, _ *proxy) { c.kill("node-b") },
			back: func(c *cluster, _ *proxy) { c.restart("node-b") },
		},
		"its credentials are revoked": {
			guarded: true,
			lose: func(c *cluster, _ *proxy) {
				if _, errs, code := c.cli("auth", "revoke", "node-b"); code != 0 {
					c.t.Fatalf("revoke exits %d: %s", code, errs)
				}
			},
			back: func(*cluster, *proxy) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := newCluster
			if c.guarded {
				cl = guarded
			}
			k := cl(t)
			if c.guarded {
				if _, errs, code := k.cli("auth", "issue", "agent", "node-c"); code != 0 {
					t.Fatalf("issue exits %d: %s", code, errs)
				}
			}
			k.services(1)
			way := newProxy(t, k.url)
			k.agent("node-a", 1)
			through := []string{"--server", way.url()}
			if c.guarded {
				through = nil
			}
			k.agent("node-b", 1, through...)
			file := filepath.Join(k.dir, "writers")
			job := k.submit("--workers", "2:2", "--", "/usr/bin/python3", "-c", writers.Program, file)
			v := k.until(job, patience, "both run", func(v events.JobView) bool {
				return len(v.Generations) == 1 && v.Generations[0].Ready
			})
			k.agent("node-c", 1)
			k.nodes(patience, "node-c")
			written(t, file, "both ranks write", func(all []writers.Entry) bool { return writers.Ranks(all, 1) == 2 })
			lost := writerOn(t, v, file, "node-b")
			c.lose(k, way)
			written(t, file, "both ranks write again", func(all []writers.Entry) bool {
				return writers.Ranks(all, all[len(all)-1].Generation) == 2 && all[len(all)-1].Generation > 1
			})
			eventually(t, patience, func() (bool, string) { return !lost.alive(), "the process on the lost node lives" })
			c.back(k, way)
			if !c.guarded {
				k.nodes(patience, "node-b")
			}
			now := len(read(t, file))
			written(t, file, "they write on", func(all []writers.Entry) bool { return len(all) > now+100 })
			if err := writers.End(file); err != nil {
				t.Fatal(err)
			}
			k.until(job, patience, "it ends", func(v events.JobView) bool { return v.State == events.JobStateSucceeded })
			if err := writers.Alone(read(t, file)); err != nil {
				t.Error(err)
			}
		})
	}
}

// writerOn returns the process that writes for a job's first generation from a node.
func writerOn(t *testing.T, v events.JobView, file string, node ident.NodeID) process {
	t.Helper()
	for _, e := range read(t, file) {
		if e.Generation == 1 && v.Generations[0].Members[e.Rank].Place.Node == node {
			return processOf(e.PID)
		}
	}
	t.Fatalf("nobody writes on %s", node)
	return process{}
}

// signalled sends a signal to a process of the cluster.
func (c *cluster) signalled(name string, s syscall.Signal) {
	c.t.Helper()
	if err := c.signal(name, s); err != nil {
		c.t.Fatal(err)
	}
}

// written waits for a condition of the shared file.
func written(t *testing.T, file, what string, ok func([]writers.Entry) bool) {
	t.Helper()
	eventually(t, patience, func() (bool, string) {
		all := read(t, file)
		return len(all) > 0 && ok(all), "waiting until " + what
	})
}

func read(t *testing.T, file string) []writers.Entry {
	t.Helper()
	all, err := writers.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
