package sim

import (
	"fmt"
	"time"

	"github.com/regroup-io/regroup/e2e/replay"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/registry/job"
	"github.com/regroup-io/regroup/services/rendezvous/round"
)

// invariants must hold in every run, whatever fails.
var invariants = [...]string{
	0:  "every message decodes, no machine panics and no service is stuck with an input",
	1:  "a generation is sealed at most once",
	2:  "ranks are 0 to n-1 without gaps, and the world is within min and max",
	3:  "no slot is given to two jobs, or twice to one, and none that does not exist",
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
	jobs         map[events.JobID]*account
	begun        map[string]*process                // by agent, job, place, attempt and generation
	good         map[events.JobID]events.Generation // the last good generation before the rendezvous' latest change
	slots        events.PoolView
	free         int                        // slots that the scheduler may assign now
	waitingSince map[events.JobID]time.Time // since when jobs wait although they would fit
	nodes        map[string]events.NodeView
	rounds       map[string]round.State
	lost         map[events.Incarnation]bool // agents that discovery has declared lost
	returns      map[events.Incarnation]int  // how often an agent was heard again after it was lost
	leftWell     map[events.Incarnation]bool // agents that have left as planned
	states       map[string]job.State
	last         map[string]*process                     // newest process by slot and job
	processes    map[events.Incarnation]agentProcess     // of workers
	ends         map[agentEnd][]events.JobFailureCounted // that the ends of agents were counted for
}

// account is what the checker knows about one job beyond its facts.
type account struct {
	countedFailures int
	dead            map[events.Incarnation]bool // incarnations that have ended or were declared lost
	failures        map[events.Incarnation]events.JobFailureCounted
	culprit         map[events.Generation]events.Incarnation // the worker whose failure was counted for a generation
	asked           map[events.Incarnation]bool              // asked to stop
	launches        map[launchKey][]byte
}

func newChecker(w *world) *checker {
	c := &checker{
		w: w, jobs: map[events.JobID]*account{}, begun: map[string]*process{}, last: map[string]*process{}, good: map[events.JobID]events.Generation{},
		waitingSince: map[events.JobID]time.Time{}, lost: map[events.Incarnation]bool{}, leftWell: map[events.Incarnation]bool{}, rounds: map[string]round.State{},
		nodes: map[string]events.NodeView{}, states: map[string]job.State{}, returns: map[events.Incarnation]int{},
		processes: map[events.Incarnation]agentProcess{}, ends: map[agentEnd][]events.JobFailureCounted{},
	}
	c.log = replay.New(c.fail)
	return c
}

func (c *checker) job(id events.JobID) *account {
	a := c.jobs[id]
	if a == nil {
		a = &account{
			dead: map[events.Incarnation]bool{}, failures: map[events.Incarnation]events.JobFailureCounted{},
			culprit: map[events.Generation]events.Incarnation{}, asked: map[events.Incarnation]bool{}, launches: map[launchKey][]byte{},
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
