package local

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/services/gateway/brokers"
)

// TestBackupIsRestored: a backup is made while jobs train and lose workers; then the broker, its
// store and all services are lost. On an empty broker with the backup the jobs go on where they
// are, lose further workers, and end with every sample once.
func TestBackupIsRestored(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	loseEverything(t, c, func() {
		c.start("nats-new", "serve", "nats", "--without-streams", "--listen", strings.TrimPrefix(c.url, "nats://"), "--state-dir", filepath.Join(c.dir, "nats"))
	})
}

// TestBackupIsRestoredOnThreeBrokers: the same where all three brokers and their stores are lost.
// Every stream has three copies then that are current.
func TestBackupIsRestoredOnThreeBrokers(t *testing.T) {
	t.Parallel()
	c := empty(t)
	c.startBrokers()
	if _, errs, code := c.cli("init", "--replicas", "3"); code != 0 {
		t.Fatalf("init exits %d: %s", code, errs)
	}
	c.ports = connect(t, c.url)
	loseEverything(t, c, func() {
		for n := range 3 {
			c.restart(fmt.Sprintf("nats-%d", n))
		}
	})
	eventually(t, patience, func() (bool, string) {
		out, errs, code := c.cli("top", "-o", "json")
		return code == 0 && everyCopyIsCurrent(t, out, 3), "every stream has three copies that are current: " + out + errs
	})
}

// TestBackupOfThisMachine: a backup finds the server as the other commands do: regroup up on this
// machine, with identities too, and what it has left after its death. Commands that read say then
// that nobody looks after the jobs.
func TestBackupOfThisMachine(t *testing.T) {
	for name, identities := range map[string]bool{"with a secret": false, "with identities": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			kept := filepath.Join(dir, "kept")
			backUp := func() {
				t.Helper()
				if _, errs, code := runLocal(t, dir, patience, "backup", kept); code != 0 {
					t.Fatalf("backup exits %d: %s", code, errs)
				}
				if out, errs, code := runLocal(t, dir, atOnce, "restore", "--check", kept); code != 0 {
					t.Errorf("restore --check exits %d: %s%s", code, out, errs)
				}
				if err := os.RemoveAll(kept); err != nil {
					t.Fatal(err)
				}
			}
			if _, errs, code := runLocal(t, dir, atOnce, "backup", kept); code == 0 || !strings.Contains(errs, "none runs here") {
				t.Errorf("backup without a server exits %d: %s", code, errs)
			}
			if _, err := os.Stat(kept); !os.IsNotExist(err) {
				t.Errorf("it has left %s: %v", kept, err)
			}
			args := []string{"up", "--slots", "1"}
			if identities {
				if _, errs, code := runLocal(t, dir, atOnce, "auth", "init"); code != 0 {
					t.Fatalf("auth init exits %d: %s", code, errs)
				}
				args = append(args, "--auth", filepath.Join(dir, "state", "auth"))
			}
			up := begin(t, dir, args...)
			up.prints("regroup is up")
			if _, errs, code := runLocal(t, dir, atOnce, append([]string{"submit", "--name", "left"}, until(filepath.Join(dir, "never"))...)...); code != 0 {
				t.Fatalf("submit exits %d: %s", code, errs)
			}
			eventually(t, patience, func() (bool, string) {
				out, errs, _ := runLocal(t, dir, atOnce, "logs", "left")
				return strings.Contains(out, "ready"), "the job runs: " + errs
			})
			if _, errs, code := runLocal(t, dir, atOnce, "ls"); code != 0 || strings.Contains(errs, "answers") {
				t.Errorf("ls of what runs exits %d: %s", code, errs)
			}
			backUp()
			up.signal(syscall.SIGKILL)
			up.ends(30 * time.Second)
			backUp()
			for _, command := range []string{"ls", "status left", "node ls"} {
				if out, errs, code := runLocal(t, dir, atOnce, strings.Fields(command)...); code != 0 || !strings.Contains(errs, "no service answers: state as of ") {
					t.Errorf("%s of what nobody serves exits %d:\n%s%s", command, code, out, errs)
				}
			}
			if _, errs, code := runLocal(t, dir, atOnce, "wait", "left"); code != 5 || !strings.Contains(errs, "regroup up") {
				t.Errorf("wait for what cannot end exits %d, want 5 and a remedy:\n%s", code, errs)
			}
		})
	}
}

// everyCopyIsCurrent reports whether the leaders of all streams know of that many copies, and that
// each has everything. top is the output of regroup top -o json.
func everyCopyIsCurrent(t *testing.T, top string, copies int) bool {
	t.Helper()
	var frame struct{ Brokers brokers.Report }
	if err := json.Unmarshal([]byte(top), &frame); err != nil {
		t.Fatalf("%v: %s", err, top)
	}
	for _, s := range frame.Brokers.Streams {
		if len(s.Replicas) != copies || slices.ContainsFunc(s.Replicas, func(r broker.ReplicaState) bool { return !r.Current }) {
			return false
		}
	}
	return len(frame.Brokers.Streams) > len(events.ServiceNames())
}

// loseEverything starts services, agents and jobs, makes a backup, kills all but the agents and
// their workers, removes the stores, and restores the backup on brokers that again starts.
func loseEverything(t *testing.T, c *cluster, again func()) {
	t.Helper()
	c.services(2)
	c.agent("node-a", 2)
	c.agent("node-b", 2)
	var jobs []ident.JobID
	for range 2 {
		jobs = append(jobs, c.submit(append([]string{"--workers", "2:2"}, c.counts(500)...)...))
	}
	for _, id := range jobs {
		c.until(id, patience, "its first generation steps", steps)
	}
	trains := func(v events.JobView) bool { // and what is known of it is not from before
		if !steps(v) || !v.Generations[len(v.Generations)-1].Ready {
			return false
		}
		return processOf(v.Generations[len(v.Generations)-1].Members[1].PID).alive()
	}
	lose := func(id ident.JobID) {
		v := c.until(id, patience, "its newest generation steps", trains)
		killPID(t, v.Generations[len(v.Generations)-1].Members[1].PID)
		c.until(id, patience, "the next generation steps", func(now events.JobView) bool {
			return trains(now) && now.Generation > v.Generation
		})
	}
	lose(jobs[0])

	dir := filepath.Join(c.dir, "backup")
	if out, errs, code := c.cli("backup", dir); code != 0 || !strings.Contains(out, "saved") {
		t.Fatalf("backup exits %d: %s%s", code, out, errs)
	}
	if out, errs, code := c.cli("restore", "--check", dir); code != 0 {
		t.Fatalf("check exits %d: %s%s", code, out, errs)
	}
	if out, errs, code := c.cli("restore", dir); code == 0 || !strings.Contains(errs, "not empty") {
		t.Fatalf("restore over a cluster that has streams exits %d: %s%s", code, out, errs)
	}

	var services []string
	for _, name := range c.procs.Names() {
		if c.agents[name] {
			continue
		}
		c.kill(name)
		if !strings.HasPrefix(name, "nats") {
			services = append(services, name)
		} else if err := os.RemoveAll(filepath.Join(c.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	again()
	if out, errs, code := c.cli("restore", dir); code != 0 {
		t.Fatalf("restore exits %d: %s%s", code, out, errs)
	}
	for _, name := range services {
		c.restart(name)
	}
	for _, id := range jobs {
		lose(id)
	}
	after := c.submit(append([]string{"--workers", "1:1"}, counter(20)...)...)
	for _, id := range append(jobs, after) {
		c.ends(id, patience)
	}
	numberedOnce(t, c, append(jobs, after)...)
}

// numberedOnce checks that no number of a fact is used twice. Those about a job have no gap; those
// of placements are counted over all jobs, and one may follow the end of a job's round.
func numberedOnce(t *testing.T, c *cluster, jobs ...ident.JobID) {
	t.Helper()
	placed := map[uint64]bool{}
	for _, id := range jobs {
		last := map[events.Family]uint64{}
		for _, e := range facts(t, c, id) {
			switch f := e.Body.Type().Family(); {
			case e.Number == 0:
			case f == events.FamilyPlacement:
				if placed[e.Number] {
					t.Errorf("%s of %s: number %d is used twice", e.Body.Type(), id, e.Number)
				}
				placed[e.Number] = true
			default:
				if e.Number != last[f]+1 {
					t.Errorf("%s of %s: number %d follows %d", e.Body.Type(), id, e.Number, last[f])
				}
				last[f] = e.Number
			}
		}
		if last[events.FamilyJob] == 0 {
			t.Errorf("no fact about %s is numbered", id)
		}
	}
	if len(placed) == 0 {
		t.Error("no fact about a placement was published")
	}
}
