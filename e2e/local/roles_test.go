package local

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// moments are the phases of a job at which a role is killed.
var moments = []struct {
	name string
	wait func(c *cluster, job ident.JobID)
}{
	{"while it starts", func(*cluster, ident.JobID) {}},
	{"while it regroups", func(c *cluster, job ident.JobID) {
		v := c.until(job, patience, "its first generation steps", steps)
		killPID(c.t, v.Generations[0].Members[len(v.Generations[0].Members)-1].PID)
	}},
	{"while it trains", func(c *cluster, job ident.JobID) { c.until(job, patience, "its first generation steps", steps) }},
}

func steps(v events.JobView) bool { return len(v.Generations) > 0 && v.Generations[0].Ready }

// TestAnyRoleMayDie runs one broker, four services, three agents. Each role in turn is killed with
// SIGKILL at each of these moments and restarted; the job succeeds.
func TestAnyRoleMayDie(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"discovery-0", "scheduler-0", "rendezvous-0", "registry-0", "nats", "node-b"} {
		t.Run(role, func(t *testing.T) {
			c := newCluster(t)
			c.services(1)
			for _, n := range []string{"node-a", "node-b", "node-c"} {
				c.agent(n, 2)
			}
			for _, m := range moments {
				job := c.submit(append([]string{"--workers", "2:4"}, c.counts(300)...)...)
				m.wait(c, job)
				c.kill(role)
				c.restart(role)
				s := c.ends(job, patience)
				if t.Failed() {
					t.Fatalf("%s was killed %s", role, m.name)
				}
				survivorsKeepTheirProcess(t, s)
			}
		})
	}
}

// survivorsKeepTheirProcess checks that a slot with the same incarnation in two consecutive
// generations has the same pid, and that each new generation has such a survivor.
func survivorsKeepTheirProcess(t *testing.T, s summary) {
	t.Helper()
	for i := 1; i < len(s.Generations); i++ {
		before := map[string]int{}
		for _, m := range s.Generations[i-1].Members {
			before[m.Incarnation] = m.PID
		}
		kept := 0
		for _, m := range s.Generations[i].Members {
			if pid, ok := before[m.Incarnation]; ok {
				kept++
				if pid != m.PID {
					t.Errorf("g%d: %s has pid %d, had %d", s.Generations[i].Generation, m.Incarnation, m.PID, pid)
				}
			}
		}
		if kept == 0 {
			t.Errorf("g%d has no survivor of g%d", s.Generations[i].Generation, s.Generations[i-1].Generation)
		}
	}
}

// TestTwoReplicas checks that two replicas of every service give the same results, and publish
// nothing twice.
func TestTwoReplicas(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.services(2)
	for _, n := range []string{"node-a", "node-b"} {
		c.agent(n, 2)
	}
	job := c.submit(append([]string{"--workers", "2:4"}, c.counts(400)...)...)
	v := c.until(job, patience, "its first generation steps", func(v events.JobView) bool { return len(v.Generations) > 0 && v.Generations[0].Ready })
	killPID(t, v.Generations[0].Members[3].PID)
	c.until(job, patience, "it has regrouped", func(v events.JobView) bool { return v.Generation > 1 })
	c.kill("rendezvous-0") // the other replica continues without a pause
	c.kill("registry-1")
	s := c.ends(job, patience)
	survivorsKeepTheirProcess(t, s)
	publishedOnce(t, c, job)
}

// TestAgentDiesWithItsWorkers checks that workers die with their agent, and that the job continues
// without the node.
func TestAgentDiesWithItsWorkers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.services(1)
	c.agent("node-a", 2)
	c.agent("node-b", 2)
	job := c.submit(append([]string{"--workers", "2:4"}, c.counts(800)...)...)
	v := c.until(job, patience, "its first generation steps", func(v events.JobView) bool { return len(v.Generations) > 0 && v.Generations[0].Ready })
	var theirs []process
	for _, m := range v.Generations[0].Members {
		if m.Place.Node == "node-b" {
			theirs = append(theirs, processOf(m.PID))
		}
	}
	killed := time.Now()
	c.kill("node-b")
	c.until(job, patience, "the survivors train", func(v events.JobView) bool {
		n := len(v.Generations)
		return n > 1 && v.Generations[n-1].Ready
	})
	t.Logf("survivors train %s after the kill", time.Since(killed))
	for _, p := range theirs {
		eventually(t, patience, func() (bool, string) {
			return !p.alive(), "worker " + strconv.Itoa(p.pid) + " outlives its agent"
		})
	}
	s := c.ends(job, patience)
	if w := s.Generations[len(s.Generations)-1].World; w != 2 {
		t.Errorf("the last generation has %d members, want the 2 of node-a", w)
	}
}

func killPID(t *testing.T, pid int) {
	t.Helper()
	if pid <= 0 {
		t.Fatalf("no pid to kill: %d", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

// process identifies a process: its pid alone may be given again.
type process struct {
	pid   int
	start string // clock ticks from the boot to its start; empty = it did not run
}

// processOf identifies the process that has a pid now.
func processOf(pid int) process {
	_, start := stat(pid)
	return process{pid, start}
}

// alive reports whether the process runs; a zombie does not.
func (p process) alive() bool {
	state, start := stat(p.pid)
	return start != "" && start == p.start && state != "Z"
}

// stat reads fields 3 and 22 of /proc/PID/stat (proc(5)); they are empty if there is no process.
// Field 2, the name, is in parentheses and may contain anything.
func stat(pid int) (state, start string) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if err != nil || len(fields) < 20 {
		return "", ""
	}
	return fields[0], fields[19]
}
