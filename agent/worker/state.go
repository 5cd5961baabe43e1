package worker

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/regroup-io/regroup/agent/workerenv"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// Config is the configuration of the state machine.
type Config struct {
	Node  ident.NodeID
	Agent ident.Incarnation // the agent's incarnation
	workerenv.Host
}

// State is the state of the state machine. Step returns the next one; the jobs in it are changed in
// place.
type State struct {
	cfg       Config
	jobs      map[ident.JobID]*job
	idCounter uint64 // worker incarnations created so far
	idTime    int64  // Unix milliseconds of the last one
	stopping  bool
	departing bool             // the node's end was announced
	departure events.Departure // with these details
	immediate bool             // stopping without grace
	lease     lease
}

// New returns the state of an agent before its first input.
func New(c Config) State { return State{cfg: c, jobs: map[ident.JobID]*job{}} }

type job struct {
	launch       events.Launch
	launchedAt   time.Time // when the first launch of its phase and generation arrived
	formed       formation
	incarnations map[ident.Slot]*incarnation
	idle         time.Time           // since when a stopped job has no process
	lastStart    time.Time           // of a process
	contexts     []workerenv.Context // of its workers on this node, if its spares should have one
	contextsAt   time.Time           // since when
	spares       keptSpares
	master       master // of the newest generation, or of the next one
	previous     master // of the generation before, until the next one begins
}

// formation is what began a generation.
type formation struct {
	generation ident.Generation
	trace      string // traceparent of the incident, or of the job's start
}

type phase string

const (
	planned  phase = "planned"
	starting phase = "starting"
	running  phase = "running"
	ended    phase = "ended"
)

// incarnation is the newest incarnation of the worker in one slot of this node.
type incarnation struct {
	ref             tables.WorkerRef // Generation is the current or last one
	phase           phase
	rank            ident.Rank // in ref.Generation
	localRank       int        // the same
	world           int
	trace           string           // traceparent of what began ref.Generation
	process         events.Span      // its span, until the exit; no Self = it was recorded
	generation      events.Span      // the span of its part in ref.Generation, likewise
	failedIn        string           // traceparent of the incident that its failure began or belongs to
	replaces        string           // failedIn of the one before it in this slot
	ready           ident.Generation // last generation in which it was ready
	left            ident.Generation // newest generation that it reports to have left
	stopRequested   bool             // by a launch, or because the agent ends
	killAt          time.Time        // after the stop
	killed          bool
	leaseOver       string    // why it is killed at the end of its lease; empty = it has one
	leaseFailure    bool      // it ends because of that: it was not stopped before
	dying           bool      // it is certain to end, and was reported as lost
	releasedAt      time.Time // when it ceased to be a member; its grace to exit begins
	verdict         string    // workerprotocol.Removed and the like, which ended its membership
	done            bool
	join            *join
	pushed          pushed
	progress        events.Progress
	steppedAs       ident.Generation  // that progress.Step was reported in
	redundancy      *reported         // the newest one reported; nil = none
	values          map[string]metric // newest ones reported
	commit          tables.Commit     // newest one reported
	progressPending bool              // progress is to be sent
	sentAt          time.Time
	ledger          tables.Ledger  // last one sent
	heldExit        *ProcessExited // by a SIGTERM of others: held until it is clear whether the node departs
	heldAt          time.Time

	// Of restart recovery, to tell how long its phases took.
	survivor           bool             // its predecessor was a member of the generation before
	steppedIn          ident.Generation // in which it has reported a step
	spansIn            ident.Generation // in which it has reported spans
	spans              int              // how many
	previousGeneration ident.Generation // that its place was in
	stoppedAt          time.Time
	endedAt            time.Time
	startedAt          time.Time
	stopping           time.Duration
	rejoining          time.Duration
	address            string           // that its join has for MASTER_ADDR and MASTER_PORT
	joinsFor           ident.Generation // that it can be part of at the earliest
}

type metric struct {
	value float64
	step  uint64
}

// pushed records the changes pushed about the current generation.
type pushed struct {
	leaving bool
	planned string       // the place that it was told; empty = none is planned
	lost    []ident.Rank // NoRank = unknown
}

// join is a join request that no launch has answered yet.
type join struct {
	req        workerprotocol.JoinRequest
	receivedAt time.Time
	sendAt     time.Time // when to send it (again)
	sentAt     time.Time // in flight since; zero = no open call
	backoff    time.Duration
	stateFrom  ident.Generation // whose members the open call was asked to fetch the state from; zero = none
}

func (w *incarnation) alive() bool { return w.phase == starting || w.phase == running }

// member reports whether the incarnation is part of its generation now.
func (w *incarnation) member() bool {
	return w.alive() && w.ref.Generation > 0 && w.left < w.ref.Generation && w.verdict == ""
}

func (j *job) inProcess() bool { return j.launch.Spec.Recovery == spec.RecoveryInProcess }

func (j *job) slots() []ident.Slot { return slices.Sorted(maps.Keys(j.incarnations)) }

// failedIn returns the incident that the failure of a slot's incarnation belongs to; "" = it did
// not fail.
func (j *job) failedIn(s ident.Slot) string {
	switch w := j.incarnations[s]; {
	case w == nil:
		return ""
	case w.phase == planned:
		return w.replaces
	default:
		return w.failedIn
	}
}

// listed returns the launch's member in a slot.
func (j *job) listed(s ident.Slot) (events.LaunchMember, bool) {
	for _, m := range j.launch.Members {
		if m.Place.Slot == s {
			return m, true
		}
	}
	return events.LaunchMember{}, false
}

func (s State) jobIDs() []ident.JobID { return slices.Sorted(maps.Keys(s.jobs)) }

func (s State) find(id ident.Incarnation) (*job, *incarnation) {
	if id == "" {
		return nil, nil
	}
	for _, j := range s.jobs {
		for _, w := range j.incarnations {
			if w.ref.Incarnation == id {
				return j, w
			}
		}
	}
	return nil, nil
}

// Revisions returns the newest launch revision per job, for heartbeats.
func (s State) Revisions() map[ident.JobID]uint64 {
	r := make(map[ident.JobID]uint64, len(s.jobs))
	for id, j := range s.jobs {
		if j.launch.Revision > 0 {
			r[id] = j.launch.Revision
		}
	}
	return r
}

// Idle reports whether no process is left.
func (s State) Idle() bool {
	for _, j := range s.jobs {
		for _, w := range j.incarnations {
			if w.alive() {
				return false
			}
		}
	}
	return true
}

// Unused reports whether the node is idle and no launch wants a process.
func (s State) Unused() bool {
	for _, j := range s.jobs {
		if j.launch.Phase != events.PhaseStop && len(j.launch.Members) > 0 {
			return false
		}
	}
	return s.Idle()
}

// MayJoin reports whether a live worker of the job on this node has no join request under way.
func (s State) MayJoin(id ident.JobID) bool {
	j := s.jobs[id]
	if j == nil {
		return false
	}
	for _, w := range j.incarnations {
		if w.alive() && w.join == nil {
			return true
		}
	}
	return false
}

// Worker is a snapshot of one worker incarnation.
type Worker struct {
	tables.WorkerRef
	Rank      ident.Rank // in Generation
	LocalRank int        // the same
}

// Workers returns the newest incarnation of every place, by job and slot.
func (s State) Workers() []Worker {
	var ws []Worker
	for _, id := range s.jobIDs() {
		j := s.jobs[id]
		for _, slot := range j.slots() {
			w := j.incarnations[slot]
			ws = append(ws, Worker{WorkerRef: w.ref, Rank: w.rank, LocalRank: w.localRank})
		}
	}
	return ws
}

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// randomFrom is where the random part of an incarnation begins: after 10 digits of time and 5 of a
// counter.
const randomFrom = 15

// newIncarnationID returns a ULID: 10 digits of time, 5 of a counter, and the last 11 of the
// agent's incarnation, because a state machine has no randomness. The ids that one agent makes
// increase even if the clock is set back: services order the incarnations of a slot by them. Their
// common part makes lists of them compress well.
func (t *transition) newIncarnationID() ident.Incarnation {
	s := t.s
	s.idCounter++
	s.idTime = max(s.idTime, t.now.UnixMilli(), 0)
	var id [26]byte
	digits(id[:10], uint64(s.idTime))
	digits(id[10:randomFrom], s.idCounter)
	agent := string(s.cfg.Agent)
	if len(agent) != len(id) { // not a ULID, but sufficient
		sum := ident.Token("agent", agent)
		for i := range len(id) - randomFrom {
			v, _ := strconv.ParseUint(sum[2*i:2*i+2], 16, 8)
			id[randomFrom+i] = crockford[v&31]
		}
		return ident.Incarnation(id[:])
	}
	copy(id[randomFrom:], agent[randomFrom:])
	return ident.Incarnation(id[:])
}

// digits writes v in base 32, most significant first.
func digits(b []byte, v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = crockford[v&31]
		v >>= 5
	}
}
