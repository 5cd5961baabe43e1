package local

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
)

const (
	outage   = 30 * time.Second // longer than all timeouts
	noBroker = time.Minute
)

// TestNoBrokerForAMinute checks that training continues without the control plane. If a worker dies
// meanwhile, its job waits; once the broker is back, the exit is published, the worker is replaced,
// and no sample is lost or counted twice.
func TestNoBrokerForAMinute(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.services(1)
	c.agent("node-a", 2)
	c.agent("node-b", 2)
	calm := c.submit(append([]string{"--workers", "2:2"}, c.counts(1000)...)...)
	quiet := c.until(calm, patience, "its first generation steps", steps)
	unhurt := map[ident.Place]process{}
	for _, m := range quiet.Generations[0].Members {
		unhurt[m.Place] = processOf(m.PID)
	}
	hit := c.submit(append([]string{"--workers", "2:2"}, c.counts(1000)...)...)
	v := c.until(hit, patience, "its first generation steps", steps)
	c.kill("nats")
	down := time.Now()
	await(t, noBroker/3, down)
	victim := v.Generations[0].Members[1]
	killPID(t, victim.PID)
	await(t, noBroker, down)
	for place, p := range unhurt {
		if !p.alive() {
			t.Errorf("%s has ended without a broker", place)
		}
	}
	c.restart("nats")
	c.ends(hit, patience)
	s := c.ends(calm, patience)
	if n := len(s.Generations); n != 1 {
		t.Errorf("the job that lost no worker has %d generations, want 1: it had to stop for the broker", n)
	}
	exits := 0
	for _, e := range facts(t, c, hit) {
		if x, ok := e.Body.(events.WorkerExited); ok && x.Incarnation == victim.Incarnation {
			if exits++; x.AgeMS < float64((noBroker / 3).Milliseconds()) {
				t.Errorf("the exit is published as %v ms old: %+v", x.AgeMS, x)
			}
		}
	}
	if exits != 1 {
		t.Errorf("the exit in the outage was published %d times, want once", exits)
	}
}

// TestAnAgentCutOffForHalfAMinute partitions a node while one of its workers dies; the others train
// on without it. When the agent is back, it reports the exit, and each of its slots runs one
// process again.
func TestAnAgentCutOffForHalfAMinute(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.services(1)
	way := newProxy(t, c.url)
	c.agent("node-a", 2)
	c.agent("node-b", 2, "--server", way.url())
	job := c.submit(append([]string{"--workers", "2:4"}, c.counts(1000)...)...)
	v := c.until(job, patience, "all four train", worldIs(4))
	way.set(true)
	cut := time.Now()
	c.until(job, patience, "the others train on", worldIs(2))
	theirs := map[ident.Place]process{}
	for _, m := range v.Generations[len(v.Generations)-1].Members {
		if m.Place.Node == "node-b" {
			theirs[m.Place] = processOf(m.PID)
		}
	}
	await(t, outage/3, cut)
	if victim := theirs[ident.Place{Node: "node-b"}]; victim.alive() {
		killPID(t, victim.pid)
	}
	await(t, outage, cut)
	before := c.job(job).Generation
	way.set(false)
	now := c.until(job, patience, "the node trains again", worldIs(4))
	if now.Generation <= before {
		t.Errorf("the node is in %s, which was there before: %s", now.Generation, before)
	}
	for place, p := range theirs {
		if p.alive() && !slices.ContainsFunc(now.Generations[len(now.Generations)-1].Members, func(n tables.Member) bool { return n.PID == p.pid }) {
			t.Errorf("%s is worked at by pid %d, which was replaced", place, p.pid)
		}
	}
	c.ends(job, 3*time.Minute)
	publishedOnce(t, c, job)
}

// TestAFrozenAgentWhoseWorkersTrainOn freezes an agent, so that no socket breaks. The loss of the
// node still ends the generation, through the agents of the others; when it resumes, the node
// starts anew.
func TestAFrozenAgentWhoseWorkersTrainOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.services(1)
	c.agent("node-a", 2)
	c.agent("node-b", 2)
	job := c.submit(append([]string{"--workers", "2:4"}, c.counts(1000)...)...)
	c.until(job, patience, "all four train", worldIs(4))
	if err := c.signal("node-b", syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	frozen := time.Now()
	c.until(job, patience, "the others train on", worldIs(2))
	if took := time.Since(frozen); took > 30*time.Second {
		t.Errorf("the others train %s after the freeze", took)
	}
	if err := c.signal("node-b", syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.until(job, patience, "the node trains again", worldIs(4))
	c.ends(job, 3*time.Minute)
	publishedOnce(t, c, job)
}

// worldIs waits until the newest generation has this size and makes steps.
func worldIs(n int) func(events.JobView) bool {
	return func(v events.JobView) bool {
		if len(v.Generations) == 0 {
			return false
		}
		g := v.Generations[len(v.Generations)-1]
		return g.Ready && g.World == n && g.Generation == v.Generation
	}
}

// await waits until a time after another one.
func await(t *testing.T, d time.Duration, since time.Time) {
	t.Helper()
	select {
	case <-time.After(time.Until(since.Add(d))):
	case <-t.Context().Done():
		t.Fatal("the test is over")
	}
}
