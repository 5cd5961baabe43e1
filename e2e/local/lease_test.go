package local

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
)

// writer is a program of a job that is restarted as a group: it appends to a file that all ranks
// share, fifty times a second, who it is. It ends when the file "over" exists.
const writer = `
import os, sys, time
who = " ".join((os.environ["REGROUP_GENERATION"], os.environ["RANK"], str(os.getpid())))
out = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
while not os.path.exists(sys.argv[1] + ".over"):
    os.write(out, ("%d %s\n" % (time.time_ns(), who)).encode())
    time.sleep(0.02)
`

// entry is one line of the shared file.
type entry struct {
	at               int64 // ns
	generation, rank int
	pid              int
}

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
			job := k.submit("--workers", "2:2", "--", "/usr/bin/python3", "-c", writer, file)
			v := k.until(job, time.Minute, "both run", func(v events.JobView) bool {
				return len(v.Generations) == 1 && v.Generations[0].Ready
			})
			k.agent("node-c", 1)
			k.nodes(time.Minute, "node-c")
			written(t, file, "both ranks write", func(all []entry) bool { return ranks(all, 1) == 2 })
			lost := writerOn(t, v, file, "node-b")
			c.lose(k, way)
			written(t, file, "both ranks write again", func(all []entry) bool {
				return ranks(all, all[len(all)-1].generation) == 2 && all[len(all)-1].generation > 1
			})
			eventually(t, time.Minute, func() (bool, string) { return !lost.alive(), "the process on the lost node lives" })
			c.back(k, way)
			if !c.guarded {
				k.nodes(time.Minute, "node-b")
			}
			now := len(read(t, file))
			written(t, file, "they write on", func(all []entry) bool { return len(all) > now+100 })
			if err := os.WriteFile(file+".over", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			k.until(job, time.Minute, "it ends", func(v events.JobView) bool { return v.State == events.JobStateSucceeded })
			oneWriter(t, read(t, file))
		})
	}
}

// writerOn returns the process that writes for a job's first generation from a node.
func writerOn(t *testing.T, v events.JobView, file string, node events.NodeID) process {
	t.Helper()
	for _, e := range read(t, file) {
		if e.generation == 1 && v.Generations[0].Members[e.rank].Place.Node == node {
			return processOf(e.pid)
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

// oneWriter checks that no process of an earlier generation wrote after one of a later generation.
func oneWriter(t *testing.T, all []entry) {
	t.Helper()
	slices.SortStableFunc(all, func(a, b entry) int { return int(a.at - b.at) })
	newest := entry{}
	for _, e := range all {
		if e.generation < newest.generation {
			t.Errorf("rank %d of g%d (pid %d) wrote %s after rank %d of g%d (pid %d) had begun", e.rank, e.generation, e.pid,
				time.Duration(e.at-newest.at), newest.rank, newest.generation, newest.pid)
			return
		}
		if e.generation > newest.generation {
			newest = e
		}
	}
}

func ranks(all []entry, generation int) int {
	seen := map[int]bool{}
	for _, e := range all {
		if e.generation == generation {
			seen[e.rank] = true
		}
	}
	return len(seen)
}

// written waits for a condition of the shared file.
func written(t *testing.T, file, what string, ok func([]entry) bool) {
	t.Helper()
	eventually(t, time.Minute, func() (bool, string) {
		all := read(t, file)
		return len(all) > 0 && ok(all), "waiting until " + what
	})
}

func read(t *testing.T, file string) (all []entry) {
	t.Helper()
	b, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(b), "\n")
	for _, line := range lines[:len(lines)-1] { // the last one may be half
		var e entry
		if n, err := fmt.Sscan(line, &e.at, &e.generation, &e.rank, &e.pid); n != 4 || err != nil {
			t.Fatalf("line %s: %v", strconv.Quote(line), err)
		}
		all = append(all, e)
	}
	return all
}
