package events

import (
	"time"

	"github.com/regroup-io/regroup/events/spec"
)

// Facts of the job family; written by the registry. The entity is the job.

// JobSubmitted says that a job was accepted.
type JobSubmitted struct {
	Job  JobID    `json:"job"`
	Spec spec.Job `json:"spec"`
	By   string   `json:"by"` // source of the submitting event
}

// JobRejected says that a command was refused. Job is empty when none could be derived.
type JobRejected struct {
	Job     JobID             `json:"job,omitempty"`
	Command string            `json:"command"`          // CloudEvents id of the refused command, as far as it could be read
	Code    Code              `json:"code,omitempty"`   // not_found: there is no such job
	Errors  []spec.FieldError `json:"findings"`         // every reason, at least one
	Expired time.Time         `json:"expired,omitzero"` // the command's expirytime, if it came after that
}

// JobScaled says that the wanted number of workers was changed.
type JobScaled struct {
	Job     JobID        `json:"job"`
	Workers spec.Workers `json:"workers"`
}

// JobRespawned is the verdict that a dead worker may be started again in its place.
type JobRespawned struct {
	Job     JobID       `json:"job"`
	Place   Place       `json:"place"`
	Dead    Incarnation `json:"dead"`    // the worker that it replaces
	Attempt int         `json:"attempt"` // number of the new life of this place, from 2
}

// JobRespawnDenied is the verdict that a dead worker is not started again while the job goes on
// without its place.
type JobRespawnDenied struct {
	Job    JobID       `json:"job"`
	Place  Place       `json:"place"`
	Dead   Incarnation `json:"dead"`
	Reason string      `json:"reason"`
}

// FailureKind is the closed list of what a failure was.
type FailureKind string

// Kinds of failures.
const (
	FailureCrash  FailureKind = "crash"  // it exited by itself: with a code that is not 0, or without having reported done
	FailureSignal FailureKind = "signal" // a signal ended it
	FailureOOM    FailureKind = "oom"    // the kernel ended it for lack of memory
	FailureLost   FailureKind = "lost"   // its node was lost, or its agent was started again
	FailureHang   FailureKind = "hang"   // it made no step for too long, or did not come back when its generation was over
	// ChargeNoProgress: generations are lost one after the other before they commit a step, and no
	// worker's end says why.
	FailureNoProgress FailureKind = "no-progress"
)

// JobFailureCounted says that a failure was charged to a worker's life: told once for each, before
// the verdict that follows. Planned ends are never charged, nor is what follows from a fault that
// was charged: one generation breaks once.
type JobFailureCounted struct {
	Job        JobID       `json:"job"`
	Place      Place       `json:"place"`
	Worker     Incarnation `json:"worker"`
	Agent      Incarnation `json:"agent"`
	Generation Generation  `json:"generation"` // that it was in; 0 = in none yet
	Rank       int         `json:"rank"`       // in Generation; -1 = none
	Step       uint64      `json:"step"`       // newest one that the generation could return to; 0 = none, or the program reports none
	Kind       FailureKind `json:"kind"`
	Detail     string      `json:"detail"`
}

// JobStalled says that no worker of a generation made a step for as long as the job allows. Told
// once per generation.
type JobStalled struct {
	Job        JobID      `json:"job"`
	Generation Generation `json:"generation"`
	Step       uint64     `json:"step"` // the last one that was heard of
	Detail     string     `json:"detail"`
}

// JobFinishing says that a worker has completed the training: nobody regroups any more, the others
// may finish.
type JobFinishing struct {
	Job JobID `json:"job"`
}

// JobStopping says that a stop was asked for: workers get their stop signal and grace.
type JobStopping struct {
	Job    JobID  `json:"job"`
	Reason string `json:"reason"`
	Now    bool   `json:"now,omitempty"` // without grace
}

// JobEnd is the end of a job; terminal stays terminal.
type JobEnd struct {
	Job    JobID  `json:"job"`
	Reason string `json:"reason"`         // a sentence
	Code   Code   `json:"code,omitempty"` // failed: Exhausted = the failure budget is used up
}

// JobSucceeded says that the job ended well.
type JobSucceeded struct{ JobEnd }

// JobFailed says that the job ended badly.
type JobFailed struct{ JobEnd }

// JobStopped says that the job was ended by someone.
type JobStopped struct{ JobEnd }

// Facts of the incident family; written by the registry. The entity is the job.

// JobRemoved says that the record of an ended job is removed. The event that submitted it is
// remembered for some time, so that a repeat of it does not begin the job anew.
type JobRemoved struct {
	Job JobID  `json:"job"`
	By  string `json:"by"` // source of the command
}

// IncidentOpened says that a fault or a resize has broken a generation.
type IncidentOpened struct {
	Job      JobID      `json:"job"`
	Incident int        `json:"incident"` // from 1 within the job
	From     Generation `json:"from"`     // the last generation with a good step
	Cause    Cause      `json:"cause"`
	Trace    string     `json:"trace"` // traceparent of the root span: TraceOf(job, from)
}

// IncidentClosed says that the job makes steps again, that its processes run again where nobody
// reports steps, or that it ended.
type IncidentClosed struct {
	Job       JobID      `json:"job"`
	Incident  int        `json:"incident"`
	From      Generation `json:"from"`
	To        Generation `json:"to"` // 0 when the job ended instead
	Cause     Cause      `json:"cause"`
	Phases    Phases     `json:"phases_ms"`
	TotalMS   float64    `json:"total_ms"`             // the sum of the phases
	StepsLost *uint64    `json:"steps_lost,omitempty"` // made and void; absent = unknown
	AtLeast   bool       `json:"at_least,omitempty"`   // StepsLost is a lower bound: nobody survived who could tell
	Started   bool       `json:"started,omitempty"`    // it ends with the start of the processes: no step was reported
	TraceID   string     `json:"trace_id"`
}

// Cause says what started an incident.
type Cause struct {
	Kind   CauseKind `json:"kind"`
	Place  *Place    `json:"place,omitempty"` // whose fault or change it is, if of one worker
	Node   NodeID    `json:"node,omitempty"`
	Rank   int       `json:"rank"`             // rank of the lost worker in From, -1 if none
	Detail string    `json:"detail,omitempty"` // "killed by signal 9 (SIGKILL)"
}

// Accuses tells whether this is what peers say of a worker, from which its exit may tell more.
func (c Cause) Accuses(p Place, rank int) bool {
	return c.Kind == CauseWorkerLost && c.Place != nil && *c.Place == p && c.Rank == rank
}

// CauseKind is the closed list of causes.
type CauseKind string

// Causes of a new generation.
const (
	CauseStart        CauseKind = "start"         // the first generation
	CauseWorkerFailed CauseKind = "worker-failed" // a process died
	CauseWorkerLost   CauseKind = "worker-lost"   // peers accused it and it did not come back in time
	CauseNodeLost     CauseKind = "node-lost"     // discovery's verdict
	CauseLink         CauseKind = "link"          // two nodes cannot reach each other, and one is left out for a while
	CauseHang         CauseKind = "hang"          // nobody made a step for as long as the job allows
	CauseGrow         CauseKind = "grow"          // planned: more members
	CauseShrink       CauseKind = "shrink"        // planned: fewer members (scale, drain)
)

// Planned tells resizes from faults.
func (c CauseKind) Planned() bool { return c == CauseGrow || c == CauseShrink || c == CauseStart }

// Phases are the parts of an incident in milliseconds, each measured on one clock.
type Phases struct {
	Notice    float64 `json:"notice"`     // fault -> first notice at a judge
	Abort     float64 `json:"abort"`      // notice at a survivor -> out of its collective, state restored, asking to rejoin
	Judge     float64 `json:"judge"`      // first notice -> the members of the new generation are decided, less what survivors spent in abort
	Regroup   float64 `json:"regroup"`    // decision -> communicator of the new generation stands
	Sync      float64 `json:"sync"`       // newest commit at every member
	FirstStep float64 `json:"first_step"` // first good step
}

// Sum adds the phases.
func (p Phases) Sum() float64 {
	return p.Notice + p.Abort + p.Judge + p.Regroup + p.Sync + p.FirstStep
}

// Ledger is the account of the samples that a job's committed steps really consumed.
type Ledger struct {
	Samples uint64        `json:"samples"`               // size of one epoch; 0 = the program keeps no ledger
	Epochs  []LedgerEpoch `json:"epochs" bound:"epochs"` // finished and current epochs in order
}

// LedgerEpoch is one epoch's account.
type LedgerEpoch struct {
	Epoch uint64 `json:"epoch"`
	Count uint64 `json:"count"`      // samples consumed by committed steps
	Sum   uint64 `json:"sum,string"` // sum modulo 2^64 of SampleHash(index) over them
	Done  bool   `json:"done"`       // the epoch was closed by the program
}

// SampleHash is the hash of a sample index that ledgers sum up (the finaliser of splitmix64, Steele
// et al. 2014).
func SampleHash(index uint64) uint64 {
	z := index + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Commit names a committed state: ordered by (Generation, Step).
type Commit struct {
	Generation Generation `json:"generation"`
	Step       uint64     `json:"step"`
	Hash       string     `json:"hash,omitempty" bound:"word"`
}

// Newer tells whether c is newer than d.
func (c Commit) Newer(d Commit) bool {
	if c.Generation != d.Generation {
		return c.Generation > d.Generation
	}
	return c.Step > d.Step
}

// ms converts a duration for Phases.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Milliseconds converts a duration to fractional milliseconds, as all figures of incidents are
// given.
func Milliseconds(d time.Duration) float64 { return ms(d) }

// Facts of the placement family; written by the scheduler. The entity is the job.

// PlacementSet says which places a job has from now on; it replaces every earlier one of a lower
// Number.
type PlacementSet struct {
	Job       JobID        `json:"job"`
	Places    Places       `json:"places"`         // sorted by node and slot; may be fewer than Min after a loss
	Workers   spec.Workers `json:"workers"`        // as wanted when this was decided
	Spec      spec.Job     `json:"spec"`           // so that the rendezvous needs no other reading
	Reason    string       `json:"reason"`         // why it changed
	LostNodes []NodeID     `json:"gone,omitempty"` // nodes that were taken out because they are lost (not planned)
	// Hosts is the nodes of Places in the order of the host list, in which new nodes get their
	// ranks; empty = by name.
	Hosts []NodeID `json:"hosts,omitempty"`
}

// PlacementWaiting says why a job cannot be placed now.
type PlacementWaiting struct {
	Job    JobID  `json:"job"`
	Reason string `json:"reason"` // a sentence with numbers
	Need   int    `json:"need"`
	Free   int    `json:"free"`
}

// PlacementReleased says that an ended job's places are free again.
type PlacementReleased struct {
	Job JobID `json:"job"`
}

// Facts of the round family; written by the rendezvous. The entity is the job.

// Member is a worker slot that takes part in a generation. Ranks are Horovod's: global, on the
// node, and among the nodes that own this local rank.
type Member struct {
	Place       Place       `json:"place"`
	Incarnation Incarnation `json:"incarnation"`     // of the worker; under restart recovery of the process to come
	Agent       Incarnation `json:"agent,omitempty"` // of the node's agent when it joined
	Attempt     int         `json:"attempt"`
	Rank        int         `json:"rank"`
	LocalRank   int         `json:"local_rank"`
	LocalSize   int         `json:"local_size"`
	CrossRank   int         `json:"cross_rank"`
	CrossSize   int         `json:"cross_size"`
	Address     string      `json:"address,omitempty" bound:"word"` // data-plane host:port
	Commit      Commit      `json:"commit"`                         // the newest it held when it joined
	PID         int         `json:"pid,omitempty"`
}

// RoundOpened says that a new generation is being agreed on.
type RoundOpened struct {
	Job      JobID      `json:"job"`
	Proposed Generation `json:"proposed"`
	Expected Places     `json:"expected"`
	Cause    Cause      `json:"cause"`
}

// RoundMissed says who is asked back in vain: members of the generation that is over, accused or
// hung, which did not come back within elastic.rejoinWithin and without whom the round has fewer
// than min. Each list replaces the one before.
type RoundMissed struct {
	Job      JobID      `json:"job"`
	Proposed Generation `json:"proposed"`
	Missing  []Member   `json:"missing"` // empty = all have come back since
}

// RoundSealed says who is in a generation, with which rank. A generation is sealed at most once.
type RoundSealed struct {
	Job        JobID       `json:"job"`
	Generation Generation  `json:"generation"`
	Members    MemberTable `json:"members"` // in order of rank
	Cause      Cause       `json:"cause"`
	Excluded   Places      `json:"aside,omitempty"`       // of members before that came back and are left out: their node cannot reach another one
	From       Generation  `json:"from"`                  // last generation with a good step; 0 = none
	NoticeMS   float64     `json:"notice_ms"`             // age of the fault when the first notice arrived
	JudgeMS    float64     `json:"judge_ms"`              // from the first notice to this seal
	NoProgress int         `json:"no_progress,omitempty"` // generations in a row before this one that were lost to faults without progress
}

// RoundParticipantsSet says which nodes have come by themselves to a job that nobody places, and so
// which places it has from now on; it replaces every earlier one. It is told from the first
// complete round on.
type RoundParticipantsSet struct {
	Job       JobID        `json:"job"`
	Round     int          `json:"round"`  // TorchElastic's, from 0: counts the changes of the set of nodes
	Nodes     []NodeID     `json:"nodes"`  // that take part, in order of arrival
	Places    []Place      `json:"places"` // of these nodes, by node and slot
	Workers   spec.Workers `json:"workers"`
	Reason    string       `json:"reason"`           // why it changed
	LostNodes []NodeID     `json:"gone,omitempty"`   // nodes that were taken out because they are lost
	Closed    bool         `json:"closed,omitempty"` // nobody is taken in any more

	Abandoned bool `json:"abandoned,omitempty"` // because nobody came for too long, before there was a generation
}

// RoundClosed says that the rendezvous of a job is over for good.
type RoundClosed struct {
	Job    JobID  `json:"job"`
	Reason string `json:"reason"`
}
