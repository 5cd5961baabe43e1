package local

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// TestHungWorkersAreReplaced stops one worker with SIGSTOP, and lets one of another job compute for
// ever outside of any collective. Neither ends or breaks a connection; only missing steps reveal
// the hang.
func TestHungWorkersAreReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.services(2)
	c.agent("node-a", 3)
	c.agent("node-b", 3)
	job := func(more ...string) ident.JobID {
		args := append([]string{"--workers", "2:3", "--hang", "10s"}, c.counts(500)...)
		return c.submit(append(args, more...)...)
	}
	stopped, loops := job(), job("-loop-at", "100")
	v := c.until(stopped, patience, "it makes steps", func(v events.JobView) bool { return v.Generation > 0 && v.Step > 0 })
	victim := v.Workers[len(v.Workers)-1]
	for _, w := range v.Workers {
		if w.Rank == 1 {
			victim = w
		}
	}
	hung := processOf(victim.PID)
	if err := syscall.Kill(victim.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, id := range []ident.JobID{stopped, loops} {
		v := c.until(id, patience, "the hang is counted", func(v events.JobView) bool { return len(v.CountedFailures) > 0 })
		t.Logf("%s: counted after %s: %s", id, time.Since(began).Round(100*time.Millisecond), v.CountedFailures[0].Detail)
		if ch := v.CountedFailures[0]; ch.Kind != events.FailureHang || ch.Rank != 1 || ch.Place == nil {
			t.Errorf("%s: counted %+v, want the hang of rank 1", id, ch)
		}
	}
	eventually(t, patience, func() (bool, string) {
		return !hung.alive(), fmt.Sprintf("the stopped process %d lives on", hung.pid)
	})
	for _, id := range []ident.JobID{stopped, loops} {
		s := c.ends(id, 3*time.Minute)
		v := c.job(id)
		if len(v.Failures) != 1 {
			t.Errorf("%s: %d failures were counted, want the hang only: %+v", id, len(v.Failures), v.CountedFailures)
		}
		if len(s.Incidents) == 0 || s.Incidents[0].Cause != string(events.CauseHang) {
			t.Errorf("%s: incidents %+v, want the first one to be the hang", id, s.Incidents)
		}
	}
}
