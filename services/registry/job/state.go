// Package job answers one question: what became of the job's workers, and what follows from it?
//
// It is Horovod's worker registry (READY, SUCCESS, FAILURE of every member of a generation) and its
// reset limit, without the barrier: nobody waits here. A machine decides for one job at a time.
//
//	          submit            sealed               done
//	(nothing) ------> waiting ---------> running ----------> finishing
//	                     |                  |   \               |    \
//	                     | stop             |    \ budget used  |     \ nobody succeeded
//	                     v       stop       v     \             v      \
//	                  stopped <--------- stopping  --> failed <-----    --> succeeded
//
// Workers: starting -> running -> ready -> done -> success; or failure, lost (with its node),
// stopped (it was asked to). A worker is one life in one place: the incarnation names it, a newer
// life replaces it, and facts of an older one change nothing. Each life is charged to the failure
// budget at most once, a generation too, a planned change never. failures.sameStep of them in a row
// after one committed step end the job; see charge.go for which step that is.
//
// Facts read: placement.set, placement.waiting, round.opened, round.missed, round.sealed,
// worker.started, worker.ready, worker.done, worker.exited, node.joined, node.lost, node.left.
// Commands read: job.submit, job.scale, job.stop, job.remove. Facts written: the families job and
// incident.
//
// No order between families is assumed: a generation can be ready before it is known to be sealed,
// and a worker can have died before it is known to have been started. The outcome of a job is
// judged again after every input, from the whole state, so a fact that comes twice, late or never
// cannot end a job wrongly.
//
// Not here: who is in a generation (rendezvous), where workers run (scheduler), whether a node
// lives (discovery).
package job

import (
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// State is everything the registry knows about one job. It is stored as JSON.
type State struct {
	View events.JobView `json:"view"`

	Removed           *Removed               `json:"removed,omitempty"`   // the job was, and its record is no more: everything else is empty
	Stop              *Stop                  `json:"stop,omitempty"`      // asked for; before the submit it is only remembered
	Placed            Placement              `json:"placed"`              // as the scheduler said last
	Pending           Pending                `json:"pending"`             // the generation that is being agreed on
	Client            string                 `json:"client,omitempty"`    // traceparent within which it was submitted, if the client has a trace of its own
	LastGood          events.Generation      `json:"last_good,omitempty"` // newest generation with a good step
	Broken            events.Generation      `json:"broken,omitempty"`    // newest generation that is known to have lost a member
	CountedGeneration events.Generation      `json:"charged,omitempty"`   // newest generation whose break was charged
	Commit            events.Commit          `json:"commit,omitzero"`     // in-process recovery: newest one that the current generation could return to
	Finish            Finish                 `json:"finish"`
	Incident          *Incident              `json:"incident,omitempty"`    // private half of View.Open
	IncidentCount     int                    `json:"counted,omitempty"`     // incidents so far
	Slots             map[string]SlotRecord  `json:"notes,omitempty"`       // by place
	Nodes             map[events.NodeID]Node `json:"nodes,omitempty"`       // nodes of this job that have come, were lost or have left
	Timing            []Timing               `json:"timing,omitempty"`      // of the newest generations
	Reports           []ReportedStates       `json:"said,omitempty"`        // by the members of the newest generations
	NoProgress        int                    `json:"no_progress,omitempty"` // generations in a row that were lost without progress, as the newest seal said
	Permanent         PermanentFailure       `json:"futile,omitzero"`       // what has ended the newest generations, if trying again does not mend it
	Exhaustion        *Exhaustion            `json:"exhaustion,omitempty"`  // the job ends once it is known why, or soon
	Stall             Stall                  `json:"stall,omitzero"`        // the newest one
	StepGeneration    events.Generation      `json:"step_in,omitempty"`     // generation that View.Step was made in
	EarlyReady        *events.WorkerReady    `json:"early,omitempty"`       // rank 0 was ready before its generation was known to be sealed
}

// Stop is a stop that was asked for.
type Stop struct {
	Command string    `json:"command"` // id of the command, for its refusal
	Reason  string    `json:"reason"`
	Now     bool      `json:"now,omitempty"`
	By      time.Time `json:"by"` // what still runs then is given up
}

// Removed is what is left of a job whose record was removed, until nothing is stored any more that
// a repeat could be mixed up with.
type Removed struct {
	Origin string    `json:"origin"` // of the event that submitted it
	By     string    `json:"by"`     // its source
	Until  time.Time `json:"until"`
}

// SubmittedBy tells whether an event submitted the job.
func (r Removed) SubmittedBy(source, id string) bool {
	return events.JobView{State: events.JobStateStopped, Origin: r.Origin, By: r.By}.SubmittedBy(source, id)
}

// Placement is what the scheduler gave the job.
type Placement struct {
	Number uint64         `json:"number,omitempty"`
	Places []events.Place `json:"places,omitempty"`
}

// Pending is the round that is not sealed yet.
type Pending struct {
	Proposed events.Generation `json:"proposed,omitempty"`
	Cause    events.CauseKind  `json:"cause,omitempty"`
	Planned  bool              `json:"planned,omitempty"` // the current generation works on meanwhile
	Since    time.Time         `json:"since,omitzero"`    // it is waited for since, as window says
}

// Finish is the end of the training.
type Finish struct {
	Since      time.Time          `json:"since,omitzero"`     // first worker done
	Stopped    time.Time          `json:"stopped,omitzero"`   // the rest was told to stop
	Now        bool               `json:"now,omitempty"`      // without grace
	Generation events.Generation  `json:"in,omitempty"`       // newest generation in which a worker was done
	Reported   bool               `json:"told,omitempty"`     // a worker has reported its result
	Step       uint64             `json:"step,omitempty"`     // of that result
	ReportBy   time.Time          `json:"report_by,omitzero"` // all have ended, and the result is waited for until then
	Failed     *events.Place      `json:"failed,omitempty"`   // first worker that had completed the training and then failed by itself
	LateReport *events.WorkerDone `json:"late,omitempty"`     // a report of a life that was over before, until its exit tells whether to believe it
}

// SlotRecord is what is remembered about a place beside its newest worker.
type SlotRecord struct {
	Ended             []events.Incarnation `json:"ended,omitempty"`     // newest lives that have ended, oldest first
	JudgedIncarnation events.Incarnation   `json:"charged,omitempty"`   // newest life that was judged
	Verdict           verdict              `json:"verdict,omitempty"`   // about Charged
	Removed           bool                 `json:"gone,omitempty"`      // the scheduler took the place away
	ExitedIncarnation events.Incarnation   `json:"exited,omitempty"`    // a life that was thought lost, and whose exit was told then
	Succeeded         bool                 `json:"well,omitempty"`      // its exit was a success
	Displaced         events.Incarnation   `json:"unplaced,omitempty"`  // a life that was blamed only because its place was taken away, or its node gone
	Completed         bool                 `json:"completed,omitempty"` // a life that was replaced since had completed the training
	MissingSince      time.Time            `json:"behind,omitzero"`     // this worker was asked back, or its generation's successor sealed without it, and nobody said why
}

// Node is what is remembered about a node that came or went away.
type Node struct {
	Number      uint64             `json:"number,omitempty"` // of the last fact taken in
	LostAgent   events.Incarnation `json:"gone,omitempty"`   // newest agent that is no more
	NewestAgent events.Incarnation `json:"came,omitempty"`   // newest agent that has come: those before are no more
	// Restarted is the newest agent whose coming was charged, because workers of the one before
	// ended with it.
	Restarted events.Incarnation `json:"restarted,omitempty"`
}

// Timing is what a seal says about the time its round took.
type Timing struct {
	Generation events.Generation `json:"generation"`
	NoticeMS   float64           `json:"notice_ms"`
	JudgeMS    float64           `json:"judge_ms"`
}

// Fixed times of the registry. Everything else is in the job's spec.
const (
	reportFor = 30 * time.Second // after the last exit, for a report that it has overtaken: some redeliveries
	// A command, a fact or a launch is stored for no longer.
	rememberRemoved = 30 * 24 * time.Hour
	forgetAgain     = time.Minute

	rememberStop   = 30 * time.Second // a stop without a submit: commands overtake each other by no more than a redelivery or two
	stopSlack      = 10 * time.Second // after the grace, for the exits to be told
	missingTimeout = 5 * time.Second  // a worker that does not come back: time for its exit or its node's loss to be told
)

// Machine decides for one job at a time; see the package comment.
type Machine struct{}

// New returns the state of a job that nobody has spoken of.
func (Machine) New(entity string) State {
	return State{View: events.JobView{Job: events.JobID(entity)}}
}

// transition is one Step under way.
type transition struct {
	State
	in  events.Input
	now time.Time
	d   events.Decision
}

// Step takes one input into account. An ended job takes none, except that it refuses to be scaled,
// is removed, and notes how workers ended that still ran when it did.
func (Machine) Step(s State, in events.Input, now time.Time) (State, events.Decision) {
	t := &transition{State: s, in: in, now: now}
	switch b := in.Body.(type) {
	case events.JobSubmit:
		t.submit(b)
	case events.JobScale:
		t.scale(b)
	case events.JobStop:
		t.stop(b)
	case events.JobRemove:
		t.remove()
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
		case events.WorkerDone:
			t.done(b)
		case events.WorkerExited:
			t.exited(b)
		case events.NodeJoined:
			t.nodeJoined(b)
		case events.NodeLost:
			t.nodeEnded(b.NodeFact, false)
		case events.NodeLeft:
			t.nodeEnded(b.NodeFact, true)
		}
		t.expireMissing()
		t.updatePendingSince()
		t.outcome()
	}
	if b, ok := in.Body.(events.WorkerExited); ok && s.View.State.Terminal() {
		t.lateExit(b)
	}
	t.forgetStop()
	t.d.Forget = !t.known() && t.Stop == nil && t.Removed == nil
	t.forgetRemoved()
	return t.State, t.d
}

// known tells whether the job was submitted.
func (t *transition) known() bool { return t.View.State != "" }

// ongoing tells whether the job was submitted and has not ended.
func (t *transition) ongoing() bool { return t.known() && !t.View.State.Terminal() }

// inProcess tells whether workers live on through a fault.
func (t *transition) inProcess() bool { return t.View.Spec.Recovery == spec.RecoveryInProcess }

// publish says a fact in the trace of the open incident, or of the input.
func (t *transition) publish(b events.Body) {
	f := events.Fact{Body: b, Cause: t.in.ID}
	if t.View.OpenIncident != nil {
		f.Trace = t.View.OpenIncident.Trace
	}
	t.d.Facts = append(t.d.Facts, f)
}

// Deadline says when the job must be looked at again: a start, an exit grace or a stop that takes
// too long, a worker that was left behind.
func (Machine) Deadline(s State) time.Time {
	var next time.Time
	at := func(d time.Time) {
		if !d.IsZero() && (next.IsZero() || d.Before(next)) {
			next = d
		}
	}
	if s.View.State.Terminal() {
		return next
	}
	if s.Stop != nil {
		at(s.Stop.By)
	}
	if s.Removed != nil {
		at(s.Removed.Until)
	}
	if s.View.State == "" {
		return next
	}
	at(s.sealDeadline())
	at(s.finishDeadline())
	if x := s.Exhaustion; x != nil {
		at(x.By)
	}
	for _, n := range s.Slots {
		if !n.MissingSince.IsZero() {
			at(n.MissingSince.Add(missingTimeout))
		}
	}
	return next
}
