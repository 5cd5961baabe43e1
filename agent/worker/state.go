package worker

import (
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// Config is what the machine knows about its node.
type Config struct {
	Node      events.NodeID
	Agent     events.Incarnation // this life of the agent
	Advertise string             // data-plane host
	DataPorts string             // low-high; empty = any
	Socket    string             // path of the worker API
	ErrorDir  string             // where TORCHELASTIC_ERROR_FILE points into
}

// State is all that the machine knows. Step changes it in place.
type State struct {
	cfg       Config
	jobs      map[events.JobID]*job
	made      uint64 // worker incarnations made so far
	madeAt    int64  // Unix milliseconds of the last one
	stopping  bool
	departing bool             // its end was announced,
	departure events.Departure // like so
	now       bool             // stopping without grace
}

// New returns the state of an agent that has heard nothing yet.
func New(c Config) State { return State{cfg: c, jobs: map[events.JobID]*job{}} }

// job is what is known about one job on this node.
type job struct {
	launch events.Launch
	heard  time.Time // when this launch came
	lives  map[events.Slot]*life
	idle   time.Time // since when a stopped job has no process
}

// phase of a life.
type phase string

const (
	planned  phase = "planned"
	starting phase = "starting"
	running  phase = "running"
	gone     phase = "gone"
)

// life is the newest life of the worker of one place.
type life struct {
	ref       events.WorkerRef // Generation = the one it is in, or was in last
	phase     phase
	rank      int // in ref.Generation
	world     int
	trace     string            // traceparent of the launch that put it into ref.Generation
	ready     events.Generation // last generation in which it was ready
	left      events.Generation // newest generation that it says it has left
	asked     bool              // told to stop
	killAt    time.Time         // after asked
	killed    bool
	released  time.Time // a member no more: exits by itself until this plus grace
	dismissed string    // verdict that ended its membership
	done      bool
	join      *join
	pushed    pushed
	progress  events.Progress
	values    map[string]measure // newest ones that it has reported
	commit    events.Commit      // newest one that it told of
	dirty     bool               // progress is waiting to be sent
	sentAt    time.Time
	ledger    events.Ledger // last one sent

	// Restart recovery: how long the parts of coming back took.
	survivor  bool
	stepped   events.Generation // in which it has reported a step
	before    events.Generation // that its place was in
	stopFrom  time.Time
	goneAt    time.Time
	startFrom time.Time
	stopping  time.Duration
	rejoining time.Duration
	address   string
	portAsked time.Time
}

// measure is a value that a worker has reported after a step.
type measure struct {
	value float64
	step  uint64
}

// pushed remembers which changes were said about the generation that the life is in.
type pushed struct {
	leaving bool
	planned bool
	lost    []int // ranks; -1 = unknown
}

// join is a request to be in the next generation that no launch has answered yet.
type join struct {
	req     wire.JoinRequest
	arrived time.Time
	next    time.Time // when to send it (again)
	sent    time.Time // in flight since; zero = no call open
	backoff time.Duration
	told    events.Generation // whose holders the open call was told; zero = none
}

func (w *life) alive() bool { return w.phase == starting || w.phase == running }

// member tells whether the life takes part in its generation now.
func (w *life) member() bool {
	return w.alive() && w.ref.Generation > 0 && w.left < w.ref.Generation && w.dismissed == ""
}

func (j *job) inProcess() bool { return j.launch.Spec.Recovery == spec.RecoveryInProcess }

// slots returns the slots that have a life, in order.
func (j *job) slots() []events.Slot { return slices.Sorted(maps.Keys(j.lives)) }

// listed returns the launch's member in a slot.
func (j *job) listed(s events.Slot) (events.LaunchMember, bool) {
	for _, m := range j.launch.Members {
		if m.Place.Slot == s {
			return m, true
		}
	}
	return events.LaunchMember{}, false
}

func (s State) jobIDs() []events.JobID { return slices.Sorted(maps.Keys(s.jobs)) }

// find returns the life of an incarnation, or nil.
func (s State) find(id events.Incarnation) (*job, *life) {
	if id == "" {
		return nil, nil
	}
	for _, j := range s.jobs {
		for _, w := range j.lives {
			if w.ref.Incarnation == id {
				return j, w
			}
		}
	}
	return nil, nil
}

// Revisions lists the newest launch revision per job, for heartbeats.
func (s State) Revisions() map[events.JobID]uint64 {
	r := make(map[events.JobID]uint64, len(s.jobs))
	for id, j := range s.jobs {
		if j.launch.Revision > 0 {
			r[id] = j.launch.Revision
		}
	}
	return r
}

// Idle tells whether no process is left.
func (s State) Idle() bool {
	for _, j := range s.jobs {
		for _, w := range j.lives {
			if w.alive() {
				return false
			}
		}
	}
	return true
}

// Vacant tells whether the node has nothing to do and nothing was asked of it: no process is left, and no launch wants one.
func (s State) Vacant() bool {
	for _, j := range s.jobs {
		if j.launch.Phase != events.PhaseStop && len(j.launch.Members) > 0 {
			return false
		}
	}
	return s.Idle()
}

// Knows tells whether the node has anything to do with a job.
func (s State) Knows(id events.JobID) bool { _, ok := s.jobs[id]; return ok }

// MayJoin tells whether a worker of the job runs on this node that may ask to join and has not.
func (s State) MayJoin(id events.JobID) bool {
	j := s.jobs[id]
	if j == nil {
		return false
	}
	for _, w := range j.lives {
		if w.alive() && w.join == nil {
			return true
		}
	}
	return false
}

// Worker is a look at one life of a worker.
type Worker struct {
	events.WorkerRef
	Rank  int // in Generation; -1 = none
	Alive bool
}

// Workers lists the newest life of every place, by job and slot.
func (s State) Workers() []Worker {
	var ws []Worker
	for _, id := range s.jobIDs() {
		j := s.jobs[id]
		for _, slot := range j.slots() {
			w := j.lives[slot]
			ws = append(ws, Worker{WorkerRef: w.ref, Rank: w.rank, Alive: w.alive()})
		}
	}
	return ws
}
