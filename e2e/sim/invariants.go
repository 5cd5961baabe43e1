package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/regroup-io/regroup/e2e/replay"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/registry/job"
	"github.com/regroup-io/regroup/services/rendezvous/round"
)

// invariants must hold in every run, whatever fails.
var invariants = [...]string{
	0:  "every message decodes, no machine panics and no service is stuck with an input",
	1:  "a generation is sealed at most once",
	2:  "ranks are 0 to n-1 without gaps, and the world is within min and max and a multiple of what is wanted",
	3:  "no slot is given to two jobs, or twice to one, and none that does not exist or has another GPU than is asked for",
	4:  "nothing of generation g is accepted after g+1 was opened",
	5:  "a sealed generation that follows a good one holds the newest commit of its survivors",
	6:  "every sample of a finished epoch is counted exactly once",
	7:  "terminal stays terminal",
	8:  "once faults stop, every job ends, and nothing of it is left",
	9:  "a service's facts are numbered without gap or repeat, for a reader that drops lower numbers",
	10: "each incarnation and each generation counts at most one failure, a planned change none, and the budget is not exceeded",
	11: "at most one incident of a job is open, and no phase is negative",
	12: "an agent never runs two processes in one place for a job, and never runs an attempt twice",
	13: "no job has a slot that the scheduler knows to be quarantined or not on the host list, and no quarantine outlasts its end",
	14: "each self-registering node is in one list, no more than max take part, and no fewer than min in a complete round",
	15: "once faults stop, no job waits while enough slots for it are free",
	16: "under recovery by restart no process starts while one of an earlier generation may be alive anywhere",
	17: "one failure is counted for one incarnation of a node or worker, whichever fact reports it first",
}

// violation is the first invariant that did not hold.
type violation struct {
	number int
	text   string
}

func (v *violation) String() string {
	return fmt.Sprintf("invariant %d: %s: %s", v.number, invariants[v.number], v.text)
}

// checker checks everything that is stored, published and executed.
type checker struct {
	w            *world
	found        *violation
	log          *replay.Replay // of all facts
	jobs         map[ident.JobID]*account
	begun        map[string]*process              // by agent, job, place, attempt and generation
	good         map[ident.JobID]ident.Generation // the last good generation before the rendezvous' latest change
	slots        events.PoolView
	free         func(*spec.GPU) int       // slots that the scheduler may assign now to jobs that ask for a GPU
	waitingSince map[ident.JobID]time.Time // since when jobs wait although they would fit
	nodes        map[string]events.NodeView
	rounds       map[string]round.State
	lost         map[ident.Incarnation]bool // agents that discovery has declared lost
	returns      map[ident.Incarnation]int  // how often an agent was heard again after it was lost
	lostWith     map[ident.Incarnation]bool // workers whose agent was declared lost after they were started
	leftPlanned  map[ident.Incarnation]bool // agents that have left as planned
	states       map[string]job.State
	last         map[string]*process                     // newest process by slot and job
	processes    map[ident.Incarnation]*process          // of workers
	ends         map[agentEnd][]events.JobFailureCounted // that the ends of agents were counted for
}

// account is what the checker knows about one job beyond its facts.
type account struct {
	countedFailures int
	dead            map[ident.Incarnation]bool // incarnations that have ended or were declared lost
	failures        map[ident.Incarnation]events.JobFailureCounted
	culprit         map[ident.Generation]ident.Incarnation // the worker whose failure was counted for a generation
	asked           map[ident.Incarnation]bool             // asked to stop
	launches        map[string][]byte                      // by node and revision
}

func newChecker(w *world) *checker {
	c := &checker{
		w: w, jobs: map[ident.JobID]*account{}, begun: map[string]*process{}, last: map[string]*process{}, good: map[ident.JobID]ident.Generation{},
		free: func(*spec.GPU) int { return 0 }, waitingSince: map[ident.JobID]time.Time{}, lost: map[ident.Incarnation]bool{}, lostWith: map[ident.Incarnation]bool{}, leftPlanned: map[ident.Incarnation]bool{}, rounds: map[string]round.State{},
		nodes: map[string]events.NodeView{}, states: map[string]job.State{}, returns: map[ident.Incarnation]int{},
		processes: map[ident.Incarnation]*process{}, ends: map[agentEnd][]events.JobFailureCounted{},
	}
	c.log = replay.New(c.fail)
	return c
}

func (c *checker) job(id ident.JobID) *account {
	a := c.jobs[id]
	if a == nil {
		a = &account{
			dead: map[ident.Incarnation]bool{}, failures: map[ident.Incarnation]events.JobFailureCounted{},
			culprit: map[ident.Generation]ident.Incarnation{}, asked: map[ident.Incarnation]bool{}, launches: map[string][]byte{},
		}
		c.jobs[id] = a
	}
	return a
}

// fail records the first violation; it ends the run.
func (c *checker) fail(number int, format string, args ...any) {
	if c.found == nil {
		c.found = &violation{number: number, text: fmt.Sprintf(format, args...)}
		c.w.logf("VIOLATED %s", c.found)
	}
}

// fact checks a fact when it is stored, in the order of the log.
func (c *checker) fact(e events.Event) {
	if !c.log.Apply(e) {
		c.w.logf("%s #%d (%s) is stored once more", replay.Log(e), e.Number, e.Body.Type().Kind())
		return
	}
	switch b := e.Body.(type) {
	case events.RoundSealed:
		c.sealed(b)
	case events.WorkerExited:
		c.job(b.Job).dead[b.Incarnation] = true
		c.job(b.Job).asked[b.Incarnation] = b.Asked
		c.planned(b.Job, b.Incarnation)
	case events.NodeLeft:
		c.leftPlanned[b.Incarnation] = true
	case events.NodeJoined:
		if c.lost[b.Incarnation] {
			c.returns[b.Incarnation]++
		}
	case events.NodeLost:
		delete(c.leftPlanned, b.Incarnation)
		c.lost[b.Incarnation] = true
		for worker, p := range c.processes {
			if p.agent == b.Incarnation {
				c.lostWith[worker] = true
			}
		}
	case events.JobFailureCounted:
		c.countFailure(b)
	}
}

// agentEnd is what one job has lost with one incarnation of an agent.
type agentEnd struct {
	job   ident.JobID
	agent ident.Incarnation
}

// countFailure checks a failure that was counted.
func (c *checker) countFailure(b events.JobFailureCounted) {
	a := c.job(b.Job)
	if old, again := a.failures[b.Worker]; again {
		c.fail(10, "%s at %s was counted for %s and for %s", b.Worker, b.Place, old.Kind, b.Kind)
	}
	if other, again := a.culprit[b.Generation]; again && b.Generation > 0 {
		c.fail(10, "%s of %s was counted for %s and for %s", b.Generation, b.Job, other, b.Worker)
	}
	a.failures[b.Worker], a.culprit[b.Generation] = b, b.Worker
	// What was lost with an agent that came back and then left was lost nonetheless.
	if b.Kind == events.FailureLost && c.leftPlanned[b.Agent] && !c.lostWith[b.Worker] {
		c.fail(10, "%s at %s was counted, but its agent %s has left as planned", b.Worker, b.Place, b.Agent)
	}
	c.planned(b.Job, b.Worker)
	c.blames(b)
}

// blames checks that the end of an agent is counted once for a job, however many workers ended with
// it, and whichever fact reports it first: that of discovery, its successor, or the silence of its
// workers. An agent that was lost, was heard again and was lost again has ended twice.
func (c *checker) blames(b events.JobFailureCounted) {
	p, known := c.processes[b.Worker]
	if !known || (b.Kind != events.FailureLost && !p.endedWithAgent) {
		return
	}
	end := agentEnd{b.Job, p.agent}
	c.ends[end] = append(c.ends[end], b)
	if all := c.ends[end]; len(all) > 1+c.returns[p.agent] {
		old := all[len(all)-2]
		c.fail(17, "the end of agent %s is counted for %s at %s (%s) and for %s at %s (%s)", p.agent, old.Worker, old.Place, old.Kind, b.Worker, b.Place, b.Kind)
	}
}

// planned checks that a requested exit is not counted as a failure. Workers that were lost or hung
// are stopped after the failure was counted.
func (c *checker) planned(id ident.JobID, worker ident.Incarnation) {
	a := c.job(id)
	if b, ok := a.failures[worker]; ok && a.asked[worker] && b.Kind != events.FailureLost && b.Kind != events.FailureHang {
		c.fail(10, "%s at %s was counted for %s, but it was asked to stop", worker, b.Place, b.Kind)
	}
}

// sealed checks that a generation has no member that still works in another one, and begins with
// the newest commit.
func (c *checker) sealed(b events.RoundSealed) {
	j := c.w.jobOf(b.Job)
	if j == nil || j.spec.Recovery != spec.RecoveryInProcess {
		return
	}
	var held tables.Commit
	for _, m := range b.Members {
		if m.Commit.Newer(held) {
			held = m.Commit
		}
	}
	for _, m := range b.Members {
		p, known := c.processes[m.Incarnation]
		if !known || !p.alive {
			continue
		}
		if !p.waiting { // a join from before its generation was applied again; that is wrong only if it is known to be in it
			if g := p.group; g != nil && g.generation < b.Generation && c.good[b.Job] >= g.generation {
				c.fail(4, "%s of %s was sealed with %s, which still works in %s", b.Generation, b.Job, m.Place, g.generation)
			}
			continue
		}
		if s := p.commit; s != nil {
			has := tables.Commit{Generation: ident.Generation(s.generation), Step: s.step}
			if has.Newer(held) {
				c.fail(5, "%s of %s knows of commit %d.%d, but %s holds %d.%d", b.Generation, b.Job, held.Generation, held.Step, m.Place, s.generation, s.step)
			}
		}
	}
}

// joins checks an agent's request to join.
func (c *checker) joins(j events.MemberJoin) {
	if c.w.jobOf(j.Job) == nil {
		c.fail(4, "%s joins %s, which nobody submitted", j.Place, j.Job)
	}
}

// launch checks that launches of a revision to a node are equal. Informational fields may be newer
// when a launch is generated again, because its text is not stored.
func (c *checker) launch(l events.Launch) {
	l.From, l.Cause, l.Trace, l.Via, l.Members = 0, events.Cause{}, "", "", slices.Clone(l.Members)
	if l.Phase == events.PhaseStop {
		l.Generation = 0 // no process runs in it
	}
	for i := range l.Members {
		if m := &l.Members[i]; m.Rank < 0 {
			m.Incarnation, m.Peers = "", nil
		}
	}
	data, err := json.Marshal(l)
	if err != nil {
		c.fail(0, "launch: %v", err)
		return
	}
	a := c.job(l.Job)
	key := fmt.Sprint(l.Node, l.Revision)
	if old, ok := a.launches[key]; ok && !bytes.Equal(old, data) {
		c.fail(4, "revision %d of the launch for %s says two things: %s and %s", l.Revision, l.Node, old, data)
	}
	a.launches[key] = data
}
