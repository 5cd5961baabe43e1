// Package job tracks the state of a job's workers and decides what follows from it.
//
// It is Horovod's worker registry (READY, SUCCESS, FAILURE of every member of a generation) and its
// reset limit, without the barrier. A machine decides for one job at a time.
//
//	          submit            sealed               done
//	(nothing) ------> waiting ---------> running ----------> finishing
//	                     |                  |   \               |    \
//	                     | stop             |    \ budget used  |     \ nobody succeeded
//	                     v       stop       v     \             v      \
//	                  stopped <--------- stopping  --> failed <-----    --> succeeded
//
// Workers: starting -> running -> ready -> done -> success; or failure, lost (with its node),
// stopped (as requested). A worker is one incarnation in one place: a newer incarnation replaces
// it, and facts of an older one change nothing. An incarnation counts against the failure budget at
// most once, and so does a generation; a planned change never does. failures.sameStep consecutive
// failures after one committed step end the job; failure.go determines that step.
//
// Where elastic.startWithin passes without a first seal, waiting goes to failed.
//
// Facts read: placement.set, placement.waiting, round.opened, round.missed, round.sealed,
// round.participants-set, worker.started, worker.ready, worker.done, worker.exited, node.joined,
// node.lost, node.left. Commands read: job.submit, job.scale, job.stop, job.remove. Signals read:
// progress, and steps that have stalled. Facts written: the families job and incident.
//
// No order between families is assumed: a generation can be ready before it is known to be sealed,
// and a worker can have died before it is known to have been started. The outcome of a job is
// determined anew after every input, from the whole state, so that a fact that arrives twice, late
// or never cannot end a job wrongly.
//
// Other services decide who is in a generation (rendezvous), where workers run (scheduler) and
// whether a node is alive (discovery).
package job

import (
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// State is everything the registry knows about one job. It is stored as JSON.
type State struct {
	View events.JobView `json:"view"`

	// The job was removed and its record is gone: of the other fields only View.Job is set.
	Removed *Removed  `json:"removed,omitempty"`
	Stop    *Stop     `json:"stop,omitempty"` // a requested stop; before the submit it is only stored
	Placed  Placement `json:"placed"`         // the scheduler's last placement
	Pending Pending   `json:"pending"`        // the round that is not sealed yet
	// Traceparent of the submit, if the client has its own trace.
	Client            string           `json:"client,omitempty"`
	LastGood          ident.Generation `json:"last_good,omitempty"`          // newest generation with a good step
	Broken            ident.Generation `json:"broken,omitempty"`             // newest generation that is known to have lost a member
	CountedGeneration ident.Generation `json:"counted_generation,omitempty"` // newest generation whose break was counted
	// In-process recovery: newest commit that the current generation could return to.
	Commit        tables.Commit         `json:"commit,omitzero"`
	Finish        Finish                `json:"finish"`
	Incident      *Incident             `json:"incident,omitempty"`       // private part of View.OpenIncident
	IncidentCount int                   `json:"incident_count,omitempty"` // incidents so far
	Slots         map[string]SlotRecord `json:"slots,omitempty"`          // by place
	// Nodes of this job that have joined, were lost or have left.
	Nodes  map[ident.NodeID]Node `json:"nodes,omitempty"`
	Timing []Timing              `json:"timing,omitempty"` // of the newest generations
	// What the agents of the newest generations have reported of each rank.
	Reports []ReportedStates `json:"reports,omitempty"`
	// Consecutive generations that were lost without progress, according to the newest seal.
	NoProgress int `json:"no_progress,omitempty"`
	// What has ended the newest generations, if a retry does not fix it.
	Permanent PermanentFailure `json:"permanent,omitzero"`
	// Starts of which no worker has made a step or lived for some seconds.
	Early EarlyEnds `json:"early,omitzero"`
	// The failure budget is used up, by a worker that reports the loss of a peer. The job ends when
	// the exit of that peer is known, or after a short wait.
	Exhaustion     *Exhaustion      `json:"exhaustion,omitempty"`
	Stall          Stall            `json:"stall,omitzero"`            // the newest one
	StepGeneration ident.Generation `json:"step_generation,omitempty"` // generation in which View.Step was made
	StepMade       time.Time        `json:"step_made,omitzero"`        // when a replica has heard of View.Step first
	Published      Published        `json:"published,omitzero"`        // the newest JobProgressed
	// Rank 0 was ready before the seal of its generation arrived.
	EarlyReady *events.WorkerReady `json:"early_ready,omitempty"`
}

// Stop is a requested stop.
type Stop struct {
	Command string    `json:"command"` // id of the command, for its refusal
	Reason  string    `json:"reason"`
	Now     bool      `json:"now,omitempty"`
	By      time.Time `json:"by"` // workers that still run then are given up
}

// Removed is what remains of a removed job until nothing that is stored can be mistaken for a
// message of a new job with the same id.
type Removed struct {
	Origin string    `json:"origin"` // ident.Origin of the event that submitted it
	By     string    `json:"by"`     // source of that event
	Until  time.Time `json:"until"`
}

// SubmittedBy reports whether an event submitted the job.
func (r Removed) SubmittedBy(source, id string) bool {
	return r.Origin == ident.Origin(source, id)
}

// Placement is the job's placement by the scheduler.
type Placement struct {
	Number uint64        `json:"number,omitempty"`
	Places []ident.Place `json:"places,omitempty"`
}

// Pending is the round that is not sealed yet.
type Pending struct {
	Proposed ident.Generation `json:"proposed,omitempty"`
	Cause    events.CauseKind `json:"cause,omitempty"`
	Planned  bool             `json:"planned,omitempty"` // the current generation works on meanwhile
	Since    time.Time        `json:"since,omitzero"`    // since when the job could train and has no working generation
}

// Finish is the end of the training.
type Finish struct {
	Since      time.Time        `json:"since,omitzero"`       // when the first worker was done
	Stopped    time.Time        `json:"stopped,omitzero"`     // when the remaining workers were stopped
	Now        bool             `json:"now,omitempty"`        // without grace
	Generation ident.Generation `json:"generation,omitempty"` // newest generation in which a worker was done
	Reported   bool             `json:"reported,omitempty"`   // a worker has reported its result
	Step       uint64           `json:"step,omitempty"`       // of that result
	// All workers have ended, and the job waits for the result until then.
	ReportBy time.Time `json:"report_by,omitzero"`
	// First worker that failed by itself after it had completed the training.
	Failed *ident.Place `json:"failed,omitempty"`
	// A result of an incarnation that was taken for ended. It counts once the exit of that
	// incarnation confirms it.
	LateReport *events.WorkerDone `json:"late_report,omitempty"`
}

// SlotRecord is the record of a place besides its newest worker.
type SlotRecord struct {
	Ended             []ident.Incarnation `json:"ended,omitempty"`              // newest incarnations that have ended, oldest first
	JudgedIncarnation ident.Incarnation   `json:"judged_incarnation,omitempty"` // newest incarnation with a verdict
	Verdict           verdict             `json:"verdict,omitempty"`            // about JudgedIncarnation
	Removed           bool                `json:"removed,omitempty"`            // the scheduler revoked the place
	// An incarnation that was presumed lost and whose exit was reported afterwards.
	ExitedIncarnation ident.Incarnation `json:"exited_incarnation,omitempty"`
	Succeeded         bool              `json:"succeeded,omitempty"` // that exit was a success
	// An incarnation that was denied a respawn only because its place or node was gone.
	Displaced ident.Incarnation `json:"displaced,omitempty"`
	// An earlier incarnation of this place has completed the training.
	Completed bool `json:"completed,omitempty"`
	// Consecutive incarnations that have died soon after their start, and when the newest of them
	// is respawned; zero = at once.
	EarlyDeaths int       `json:"early_deaths,omitempty"`
	RespawnAt   time.Time `json:"respawn_at,omitzero"`
	// Since when this worker has not rejoined, or was left out of a round, while neither an exit
	// nor the loss of its node is known.
	MissingSince time.Time `json:"missing_since,omitzero"`
}

// Node is the record of a node that joined or ended.
type Node struct {
	Number      uint64            `json:"number,omitempty"`       // of the last fact applied
	LostAgent   ident.Incarnation `json:"lost_agent,omitempty"`   // newest agent that is gone
	NewestAgent ident.Incarnation `json:"newest_agent,omitempty"` // newest agent that has joined: earlier ones are gone
	// The end of CountedAgent is settled: it was counted as a failure, or need not be. So are the
	// ends of all agents before CountedBefore, which has reported the exits of its predecessor's
	// workers.
	CountedAgent  ident.Incarnation `json:"counted_agent,omitempty"`
	CountedBefore ident.Incarnation `json:"counted_before,omitempty"`
}

// Timing holds the times of a round, as its fact round.sealed has them: NoticeMS is the age of the
// fault when the rendezvous heard of it, JudgeMS the time from then to the seal, of which BackOffMS
// is a delay.
type Timing struct {
	Generation ident.Generation `json:"generation"`
	NoticeMS   float64          `json:"notice_ms"`
	JudgeMS    float64          `json:"judge_ms"`
	BackOffMS  float64          `json:"back_off_ms,omitempty"`
}

// Fixed times of the registry. All others are in the job's spec.
const (
	// After the last exit, for a result that comes later than the exit: several redeliveries.
	reportFor = 30 * time.Second
	// No command, fact or launch is stored for longer.
	rememberRemoved = 30 * 24 * time.Hour
	forgetRetry     = time.Minute // when the document of a removed job could not be deleted

	rememberStop   = 30 * time.Second // a stop without a submit: commands overtake each other by at most a few redeliveries
	stopSlack      = 10 * time.Second // after the grace, for the exits to be reported
	missingTimeout = 5 * time.Second  // a worker that does not rejoin: time for its exit or its node's loss to be reported
)

// Machine decides for one job at a time; see the package comment.
type Machine struct{}

// New returns the state of a job without any input.
func (Machine) New(entity string) State {
	return State{View: events.JobView{Job: ident.JobID(entity)}}
}

// transition is one Step in progress.
type transition struct {
	State
	in  events.Input
	now time.Time
	d   events.Decision
	// How long a node that is lost had been silent, in milliseconds; 0 = unknown.
	nodeSilence float64
	// The input is the end of an agent, perhaps long ago, or a join that may have replaced one.
	agentEnded bool
}

// Step applies one input. A job that has ended answers commands (it cannot be scaled, and can be
// removed), and records the exits of workers that still ran when it ended. It ignores all else.
func (Machine) Step(s State, in events.Input, now time.Time) (State, events.Decision) {
	t := &transition{State: s, in: in, now: now}
	if t.command(); t.d.Refusal != nil && len(t.d.Facts) == 0 {
		t.d.Forget = t.unused() // no fact has this refusal: the controller publishes it
		return s, t.d
	}
	if t.ongoing() {
		switch b := in.Body.(type) {
		case events.PlacementSet:
			t.placed(b)
		case events.PlacementWaiting:
			t.waiting(b)
		case events.RoundOpened:
			t.opened(b)
		case events.RoundSealed:
			t.sealed(b)
		case events.RoundMissed:
			t.missed(b)
		case events.Progress:
			t.progressed(b)
		case events.StepsStalled:
			t.stepsStalled(b)
		case events.RoundParticipantsSet:
			t.participantsSet(b)
		case events.WorkerStarted:
			t.started(b)
		case events.WorkerReady:
			t.ready(b)
		case events.WorkerHashed:
			t.hashed(b)
		case events.WorkerDone:
			t.done(b)
		case events.WorkerExited:
			t.exited(b)
		case events.NodeJoined:
			t.agentEnded = true // the agent may have replaced an older one
			t.nodeJoined(b)
		case events.NodeLost:
			t.nodeSilence, t.agentEnded = b.SilentMS, true
			t.correctSilence(b.Node)
			t.nodeEnded(b.NodeFact, false)
		case events.NodeLeft:
			t.nodeEnded(b.NodeFact, true)
		}
		t.expireMissing()
		t.expireDelays()
		t.updatePendingSince()
		t.outcome()
	}
	if b, ok := in.Body.(events.WorkerExited); ok && s.View.State.Terminal() {
		t.lateExit(b)
	}
	t.forgetStop()
	t.d.Forget = t.unused()
	t.forgetRemoved()
	return t.State, t.d
}

// unused reports whether nothing is to be remembered of the job.
func (t *transition) unused() bool { return !t.known() && t.Stop == nil && t.Removed == nil }

func (t *transition) known() bool { return t.View.State != "" }

func (t *transition) ongoing() bool { return t.known() && !t.View.State.Terminal() }

// waitingOrRunning reports whether the job has not ended, and is not about to.
func (s *State) waitingOrRunning() bool {
	return s.View.State == events.JobStateWaiting || s.View.State == events.JobStateRunning
}

// inProcess reports whether workers survive a fault of others.
func (t *transition) inProcess() bool { return t.View.Spec.Recovery == spec.RecoveryInProcess }

// publish adds a fact in the trace of the open incident, or of the input.
func (t *transition) publish(b events.Body) {
	t.d.Facts = append(t.d.Facts, events.Fact{Body: b, Cause: t.in.ID, Trace: t.incidentTrace("")})
}

// Deadline returns when the job must be examined again: when a start, a stop or the wait for a
// result has taken too long, a worker has been missing for too long or is to be started again, and
// when what remains of a removed job may be forgotten.
func (Machine) Deadline(s State) time.Time {
	if s.View.State.Terminal() {
		return time.Time{}
	}
	var next time.Time
	if s.Stop != nil {
		next = s.Stop.By
	}
	if s.Removed != nil {
		next = events.Earliest(next, s.Removed.Until)
	}
	if s.View.State == "" {
		return next
	}
	next = events.Earliest(next, s.sealDeadline(), s.finishDeadline())
	if x := s.Exhaustion; x != nil {
		next = events.Earliest(next, x.By)
	}
	for _, n := range s.Slots {
		if !n.MissingSince.IsZero() {
			next = events.Earliest(next, n.MissingSince.Add(missingTimeout))
		}
		next = events.Earliest(next, n.RespawnAt)
	}
	return next
}
