package events

import (
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/leases"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// Facts of the job family; written by the registry. The entity is the job.

// JobSubmitted records that a job was accepted.
type JobSubmitted struct {
	Job  ident.JobID `json:"job"`
	Spec spec.Job    `json:"spec"`
	By   string      `json:"by"` // source of the submitting event
}

// JobRejected records that a command was refused. Job is empty if none could be derived.
type JobRejected struct {
	Job     ident.JobID       `json:"job,omitempty"`
	Command string            `json:"command"`          // CloudEvents id of the refused command, as far as it could be decoded
	Code    errcode.Code      `json:"code,omitempty"`   // not_found: there is no such job
	Errors  []spec.FieldError `json:"errors"`           // every reason, at least one
	Expired time.Time         `json:"expired,omitzero"` // the command's expirytime, if it arrived after that
}

// JobScaled records that the wanted number of workers was changed.
type JobScaled struct {
	Job     ident.JobID  `json:"job"`
	Workers spec.Workers `json:"workers"`
}

// JobRespawned records that a dead worker is started again in its place.
type JobRespawned struct {
	Job     ident.JobID       `json:"job"`
	Place   ident.Place       `json:"place"`
	Dead    ident.Incarnation `json:"dead"`    // the worker that it replaces
	Attempt int               `json:"attempt"` // number of the new incarnation in this place, from 2
}

// JobRespawnDenied records that a dead worker is not started again: its place stays empty.
type JobRespawnDenied struct {
	Job    ident.JobID       `json:"job"`
	Place  ident.Place       `json:"place"`
	Dead   ident.Incarnation `json:"dead"`
	Reason string            `json:"reason"`
}

// JobDelayed records that a worker that died soon after its start, several times in a row, is
// started again only after a while. job.respawned follows.
type JobDelayed struct {
	Job    ident.JobID       `json:"job"`
	Place  ident.Place       `json:"place"`
	Dead   ident.Incarnation `json:"dead"`
	WaitMS float64           `json:"wait_ms"`
	Attempts
}

// Attempts says which attempt a wait precedes.
type Attempts struct {
	Attempt int `json:"attempt"` // the next one; the first start of a job or of a place is 1
	// Of is how many the failure budget allows within its window; 0 = it is unknown, because not
	// every attempt costs a failure.
	Of int `json:"of,omitempty"`
}

// FailureKind classifies failures; the list is closed.
type FailureKind string

// Kinds of failures.
const (
	FailureCrash      FailureKind = "crash"             // it exited by itself: with a code other than 0, or without having reported done
	FailureSignal     FailureKind = "signal"            // a signal ended it
	FailureOOM        FailureKind = "oom"               // the kernel killed it for lack of memory
	FailureLost       FailureKind = "lost"              // its node was lost, or its agent was restarted
	FailureStart      FailureKind = "start"             // its node had not what it takes to start a process: memory, descriptors, disk
	FailureHang       FailureKind = "hang"              // it made no step for too long, or did not rejoin when its generation was over
	FailureCorrupt    FailureKind = "silent-corruption" // its results are not those of other workers
	FailureNoProgress FailureKind = "no-progress"       // generations end before a step, and no exit says why
)

// JobFailureCounted records that the failure of a worker incarnation was counted. It is published
// once for each, before the decision that follows. Planned exits are never counted, nor are the
// consequences of a counted failure: one generation breaks once.
type JobFailureCounted struct {
	Job        ident.JobID       `json:"job"`
	Place      ident.Place       `json:"place"`
	Worker     ident.Incarnation `json:"worker"`
	Agent      ident.Incarnation `json:"agent"`
	Generation ident.Generation  `json:"generation"` // its generation; 0 = in none yet
	Rank       ident.Rank        `json:"rank"`       // in Generation
	// Newest step that the generation could return to; 0 = none, or the program reports none.
	Step   uint64      `json:"step"`
	Kind   FailureKind `json:"kind"`
	Detail string      `json:"detail"`
	By     string      `json:"by,omitempty"` // source of the event that has submitted the job
}

// JobStalled records that no worker of a generation has made a step within the job's limit. It is
// published once per generation.
type JobStalled struct {
	Job        ident.JobID      `json:"job"`
	Generation ident.Generation `json:"generation"`
	Step       uint64           `json:"step"` // the last one reported
	Detail     string           `json:"detail"`
}

// JobProgressed records how far a job is, and the newest values that its program has reported. It
// is published every 5 s at most, more rarely the longer a job runs, and once before its end.
type JobProgressed struct {
	Job        ident.JobID       `json:"job"`
	Generation ident.Generation  `json:"generation"`
	Step       uint64            `json:"step"`             // the newest that is known; 0 = the program reports none
	At         time.Time         `json:"at,omitzero"`      // when the registry has heard of the step
	Values     map[string]Metric `json:"values,omitempty"` // as in JobView.Reported
}

// JobFinishing records that a worker has completed the training. There are no further generations,
// and the other workers may finish.
type JobFinishing struct {
	Job ident.JobID `json:"job"`
}

// JobStopping records that a stop was requested. Workers get their stop signal and grace.
type JobStopping struct {
	Job    ident.JobID `json:"job"`
	Reason string      `json:"reason"`
	Now    bool        `json:"now,omitempty"` // without grace
}

// JobEnd is the end of a job. A terminal state never changes.
type JobEnd struct {
	Job    ident.JobID  `json:"job"`
	Reason string       `json:"reason"`         // a sentence
	Code   errcode.Code `json:"code,omitempty"` // failed: Exhausted = the failure budget is used up
	// Hash is the newest of the training's state, if its program computes one.
	StateHash *tables.StateHash `json:"state_hash,omitempty"`
}

// JobEndFact is a fact that embeds a JobEnd.
type JobEndFact interface {
	Body
	End() JobEnd
}

// End implements JobEndFact.
func (e JobEnd) End() JobEnd { return e }

// Fact returns the fact of a job that has ended in a terminal state.
func (e JobEnd) Fact(s JobState) JobEndFact {
	switch s {
	case JobStateSucceeded:
		return JobSucceeded{e}
	case JobStateStopped:
		return JobStopped{e}
	}
	return JobFailed{e}
}

// JobSucceeded records that the job ended successfully.
type JobSucceeded struct{ JobEnd }

// JobFailed records that the job failed.
type JobFailed struct{ JobEnd }

// JobStopped records that the job was stopped on request.
type JobStopped struct{ JobEnd }

// JobRemoved records that the record of an ended job is removed. The event that submitted it is
// kept for some time, so that a repeat of it does not start the job again.
type JobRemoved struct {
	Job ident.JobID `json:"job"`
	By  string      `json:"by"` // source of the command
}

// Facts of the incident family; written by the registry. The entity is the job.

// IncidentOpened records that a fault or a resize has broken a generation.
type IncidentOpened struct {
	Job      ident.JobID      `json:"job"`
	Incident int              `json:"incident"` // from 1 within the job
	From     ident.Generation `json:"from"`     // the last generation with a good step
	Cause    Cause            `json:"cause"`
	Trace    string           `json:"trace"` // traceparent of the root span: tracing.IncidentTrace(job, from)
}

// IncidentClosed records that the job makes steps (without them: its processes run) or has ended.
type IncidentClosed struct {
	Job       ident.JobID      `json:"job"`
	Incident  int              `json:"incident"`
	From      ident.Generation `json:"from"`
	To        ident.Generation `json:"to"` // 0 when the job ended instead
	Cause     Cause            `json:"cause"`
	Phases    Phases           `json:"phases_ms"`
	TotalMS   float64          `json:"total_ms"`             // the sum of the phases
	StepsLost *uint64          `json:"steps_lost,omitempty"` // made and lost; absent = unknown
	AtLeast   bool             `json:"at_least,omitempty"`   // StepsLost is a lower bound: no survivor could report it
	Started   bool             `json:"started,omitempty"`    // it ends with the start of the processes: no step was reported
	TraceID   string           `json:"trace_id"`
	// SilenceMS is how long nobody had observed a step when the first phase began: whether the job
	// trained then is unknown, and what it made is lost. Of a program that reports no steps it is
	// how long nobody had heard the lost node. 0 = there was no silence.
	SilenceMS float64 `json:"silence_ms,omitempty"`
	// SilenceUnknown: the program reports no steps, and nobody knows since when its node was lost,
	// as after a power failure of all.
	SilenceUnknown bool `json:"silence_unknown,omitempty"`
}

// Cause is the cause of an incident.
type Cause struct {
	Kind   CauseKind    `json:"kind"`
	Place  *ident.Place `json:"place,omitempty"` // the worker at fault or changed, if there is one
	Node   ident.NodeID `json:"node,omitempty"`
	Rank   ident.Rank   `json:"rank"`             // of the lost worker in From
	Detail string       `json:"detail,omitempty"` // "killed by signal 9 (SIGKILL)"
}

// CauseAt returns a cause at a place, whose worker has a rank or is the member with that index.
func CauseAt[R ~int](kind CauseKind, p ident.Place, rank R, detail string) Cause {
	return Cause{Kind: kind, Place: &p, Node: p.Node, Rank: ident.Rank(rank), Detail: detail}
}

// Accuses reports whether peers accuse this worker, whose exit may explain the cause better.
func (c Cause) Accuses(p ident.Place, rank ident.Rank) bool {
	return c.Kind == CauseWorkerLost && c.Place != nil && *c.Place == p && c.Rank == rank
}

// Blames reports whether the cause is the failure of this worker. It may have been reported before
// the end of the process explained it.
func (c Cause) Blames(p ident.Place, rank ident.Rank) bool {
	return c.Kind.WorkerFailed() && c.Place != nil && *c.Place == p && c.Rank == rank
}

// CauseKind classifies causes; the list is closed.
type CauseKind string

// Causes of a new generation.
const (
	CauseStart            CauseKind = "start"             // the first generation
	CauseWorkerFailed     CauseKind = "worker-failed"     // a process died
	CauseSilentCorruption CauseKind = "silent-corruption" // a worker has other results than the others
	CauseWorkerLost       CauseKind = "worker-lost"       // peers accused it and it did not rejoin in time
	CauseNodeLost         CauseKind = "node-lost"         // decided by discovery
	CauseLink             CauseKind = "link"              // two nodes cannot reach each other, and one is excluded for a while
	CauseHang             CauseKind = "hang"              // no worker made a step within the job's limit
	CauseGrow             CauseKind = "grow"              // planned: more members
	CauseShrink           CauseKind = "shrink"            // planned: fewer members (scale, drain)
)

// WorkerFailed reports whether the cause is a worker that has failed, in whatever way.
func (c CauseKind) WorkerFailed() bool { return c == CauseWorkerFailed || c == CauseSilentCorruption }

// Planned reports whether the cause is a resize or start, not a fault.
func (c CauseKind) Planned() bool { return c == CauseGrow || c == CauseShrink || c == CauseStart }

// Phases are the phases of an incident in milliseconds, each measured on one clock.
type Phases struct {
	Notice    float64 `json:"notice"`     // fault -> first notice at a service
	Abort     float64 `json:"abort"`      // notice at a survivor -> out of its collective, state restored, joining again
	Judge     float64 `json:"judge"`      // first notice -> members of the new generation decided, less the survivors' abort time
	Regroup   float64 `json:"regroup"`    // decision -> communicator of the new generation connected
	Sync      float64 `json:"sync"`       // newest commit at every member
	FirstStep float64 `json:"first_step"` // first good step
	// The members were there, and the generation was delayed because those before made no progress.
	BackOff float64 `json:"back_off,omitempty"`
}

// Sum returns the sum of the phases.
func (p Phases) Sum() float64 {
	return p.Notice + p.Abort + p.Judge + p.Regroup + p.Sync + p.FirstStep + p.BackOff
}

// Milliseconds converts a duration to the unit of all figures of incidents.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Facts of the placement family; written by the scheduler. The entity is the job.

// PlacementSet records the places of a job from now on. It replaces those with a lower Number.
type PlacementSet struct {
	Job       ident.JobID    `json:"job"`
	Places    ident.Places   `json:"places"`               // sorted by node and slot; may be fewer than Min after a loss
	Workers   spec.Workers   `json:"workers"`              // the wanted number at the time of the decision
	Spec      spec.Job       `json:"spec"`                 // so that the rendezvous need not read the job's record
	Reason    string         `json:"reason"`               // why it changed
	LostNodes []ident.NodeID `json:"lost_nodes,omitempty"` // nodes whose places were revoked because they are lost (not planned)
	// Hosts are the nodes of Places in the order of the host list, in which new nodes get their
	// ranks; empty = by name.
	Hosts []ident.NodeID `json:"hosts,omitempty"`
	// LostAgents are the agents of LostNodes that were lost, in the same order: when this arrives a
	// node may be back with a newer one, and a worker of that is not lost.
	LostAgents []ident.Incarnation `json:"lost_agents,omitempty"`
	// LeaseEnds is until when processes may still run on LostNodes.
	LeaseEnds leases.Ends `json:"lease_ends,omitzero"`
	// Agents are the newest incarnations of the agents of the nodes of Places, in the order of the
	// nodes' names: what is delivered later about older ones does not concern these places.
	Agents []ident.Incarnation `json:"agents,omitempty"`
}

// PlacementWaiting records that a job cannot be placed now.
type PlacementWaiting struct {
	Job    ident.JobID `json:"job"`
	Reason string      `json:"reason"` // a sentence with numbers
	Need   int         `json:"need"`
	Free   int         `json:"free"`
}

// PlacementReleased records that an ended job's places are free again.
type PlacementReleased struct {
	Job ident.JobID `json:"job"`
}

// Facts of the round family; written by the rendezvous. The entity is the job.

// RoundOpened records that a round for a new generation was opened.
type RoundOpened struct {
	Job      ident.JobID      `json:"job"`
	Proposed ident.Generation `json:"proposed"`
	Expected ident.Places     `json:"expected"`
	Cause    Cause            `json:"cause"`
}

// RoundDelayed records that the members of the next generation are there, and that it begins only
// after a while, because several in a row were lost without progress.
type RoundDelayed struct {
	Job        ident.JobID      `json:"job"`
	Proposed   ident.Generation `json:"proposed"`
	NoProgress int              `json:"no_progress"` // so many in a row
	WaitMS     float64          `json:"wait_ms"`
	Attempts
}

// RoundMissed records that these members of the previous generation, accused or hung, have not
// rejoined within elastic.rejoinWithin, and without them the round has fewer than min. Each list
// replaces the previous one.
type RoundMissed struct {
	Job      ident.JobID      `json:"job"`
	Proposed ident.Generation `json:"proposed"`
	Missing  []tables.Member  `json:"missing"` // empty = all have rejoined since
}

// RoundSealed records the members of a generation, which is sealed at most once, and their ranks.
type RoundSealed struct {
	Job        ident.JobID        `json:"job"`
	Generation ident.Generation   `json:"generation"`
	Members    tables.MemberTable `json:"members"` // in order of rank
	Cause      Cause              `json:"cause"`
	// Of those that wait, since the number of members is a multiple of elastic.multipleOf, and give
	// the members what they have of the state.
	Spares ident.Places `json:"spares,omitempty"`
	// Of previous members that rejoined and are excluded: their node cannot reach another one.
	Excluded ident.Places     `json:"excluded,omitempty"`
	From     ident.Generation `json:"from"`      // last generation with a good step; 0 = none
	NoticeMS float64          `json:"notice_ms"` // age of the fault when the first notice arrived
	JudgeMS  float64          `json:"judge_ms"`  // from the first notice to this seal
	// Of JudgeMS, for which the members were there and the generation was delayed.
	BackOffMS float64 `json:"back_off_ms,omitempty"`
	// Consecutive generations before this one that were lost to faults without progress.
	NoProgress int `json:"no_progress,omitempty"`
}

// RoundParticipantsSet records the self-registered nodes that participate in a job, and thereby its
// places from now on. It replaces every earlier one. It is published from the first complete round
// on.
type RoundParticipantsSet struct {
	Job       ident.JobID    `json:"job"`
	Round     int            `json:"round"`  // TorchElastic's, from 0: counts the changes of the set of nodes
	Nodes     []ident.NodeID `json:"nodes"`  // participants, in order of arrival
	Places    []ident.Place  `json:"places"` // of these nodes, by node and slot
	Workers   spec.Workers   `json:"workers"`
	Reason    string         `json:"reason"`               // why it changed
	LostNodes []ident.NodeID `json:"lost_nodes,omitempty"` // nodes that were removed because they are lost
	Closed    bool           `json:"closed,omitempty"`     // no more nodes are admitted

	Abandoned bool `json:"abandoned,omitempty"` // no node participated for too long before the first generation
}

// RoundClosed records that the rendezvous of a job is over for good.
type RoundClosed struct {
	Job    ident.JobID `json:"job"`
	Reason string      `json:"reason"`
}
