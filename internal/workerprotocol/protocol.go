// Package workerprotocol is the protocol between a worker and its node's agent: JSON bodies of HTTP
// calls on the agent's Unix socket (path in REGROUP_SOCKET). Every call carries the header
// Authorization: Bearer $REGROUP_TOKEN, which identifies the worker. Use curl --unix-socket to
// debug it. Errors are {"code","message"} with a 4xx or 5xx status.
//
// Agents serve it (agent/workerapi), Go workers call it (elastic/internal/agentclient).
package workerprotocol

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"slices"
	"time"
)

// Paths of the API.
const (
	PathJoin    = "/v1/join"    // POST JoinRequest -> Assignment; long poll, 204 = ask again
	PathChanges = "/v1/changes" // GET ?generation=3 -> Change; long poll, 204 = ask again
	PathPeers   = "/v1/peers"   // GET ?generation=3&rank=2 -> Peer
	PathReport  = "/v1/report"  // POST Report -> 204
	PathCommit  = "/v1/commit"  // POST CommitReport -> 204
	PathDone    = "/v1/done"    // POST DoneReport -> 204
	PathSpan    = "/v1/span"    // POST SpanReport -> 204
	PathHash    = "/v1/hash"    // POST HashReport -> 204
	// POST CheckpointRequest -> 204: it may be written
	PathCheckpoint = "/v1/checkpoint"
	// POST PreemptRequest, or nothing -> 202; for any process that may use the socket, no token
	PathPreempt = "/v1/preempt"
	// POST SubmitEnvironment -> 204; like PathPreempt
	PathEnvironment = "/v1/environment"
)

// SocketNote returns the file that names the directory of the socket, agent.sock, where the wanted
// path of the socket is too long for one.
func SocketNote(wanted string) string { return filepath.Join(filepath.Dir(wanted), "socket-dir") }

// Environment of a worker in addition to torchrun's and Horovod's.
const (
	EnvJob         = "REGROUP_JOB"
	EnvNode        = "REGROUP_NODE"
	EnvSlot        = "REGROUP_SLOT"
	EnvAttempt     = "REGROUP_ATTEMPT"
	EnvGeneration  = "REGROUP_GENERATION"
	EnvSocket      = "REGROUP_SOCKET"
	EnvToken       = "REGROUP_TOKEN"
	EnvIncarnation = "REGROUP_INCARNATION"
	EnvAdvertise   = "REGROUP_ADVERTISE"  // data-plane host on which a worker listens
	EnvDataPorts   = "REGROUP_DATA_PORTS" // low-high, empty = any
	EnvTraceparent = "TRACEPARENT"        // W3C trace context of the worker's span
	EnvEncrypt     = "REGROUP_ENCRYPT"    // 1 = data connections are encrypted; absent = not

	// EnvPrefetchWithin limits how long a newcomer prefetches the state before it joins without it;
	// like 30s. The job sets it.
	EnvPrefetchWithin = "REGROUP_PREFETCH_WITHIN"
	// EnvLogLevel is the minimum level of the SDK's own log lines: debug, info, warn or error;
	// empty = warn. The job or the shell of the agent sets it.
	EnvLogLevel = "REGROUP_LOG_LEVEL"

	// Where the SDK keeps checkpoints, how often it writes one, like 10m, and how many it keeps.
	// The user sets them.
	EnvCheckpointDir   = "REGROUP_CHECKPOINT_DIR"
	EnvCheckpointEvery = "REGROUP_CHECKPOINT_EVERY"
	EnvCheckpointKeep  = "REGROUP_CHECKPOINT_KEEP"
	// EnvCheckpointDefaultDir is the folder for checkpoints that the agent has made for this job.
	// It counts where EnvCheckpointDir is not set.
	EnvCheckpointDefaultDir = "REGROUP_CHECKPOINT_DEFAULT_DIR"
)

// Commit names a committed state; ordered by (Generation, Step).
type Commit struct {
	Generation uint64 `json:"generation"`
	Step       uint64 `json:"step"`
	Hash       string `json:"hash,omitempty"`
}

// JoinRequest asks to be in the next generation.
type JoinRequest struct {
	Address string `json:"address"`           // host:port of its data-plane connections
	Left    uint64 `json:"left"`              // generation it has just left, 0 = newcomer
	Planned bool   `json:"planned"`           // it left because a Change asked it to
	Accused []int  `json:"accused,omitempty"` // ranks of Left that its collective lost
	// Pairs of ranks of Left: the first could not reach the second, or lost its connection to it.
	Broken   [][2]int `json:"broken,omitempty"`
	Commit   Commit   `json:"commit"`    // newest commit it holds; Generation 0 = none
	NoticeMS float64  `json:"notice_ms"` // time since it noticed what made it leave

	// Unsynced: this newcomer can prefetch the state while the others train, and need not be in a
	// generation before it has it, unless there are too few members without it. The verdict
	// Prefetch tells it where, and it asks again with Unsynced = false when it is ready.
	Unsynced bool   `json:"unsynced,omitempty"`
	Holders  uint64 `json:"holders,omitempty"` // newest generation whose state holders it was given
}

// Verdicts of an Assignment.
const (
	Assigned = "assigned" // in the generation below
	Over     = "over"     // the job is finishing elsewhere: return without error
	Removed  = "removed"  // this worker is no longer part of the job: return without error
	// Prefetch answers only an unsynced request: Peers of Generation hold the state; Token is for
	// fetching it, not for membership.
	Prefetch = "prefetch"
)

// Assignment is a worker's place in a generation.
type Assignment struct {
	Verdict    string `json:"verdict"`
	Generation uint64 `json:"generation"`
	Rank       int    `json:"rank"`
	World      int    `json:"world"`
	LocalRank  int    `json:"local_rank"`
	LocalSize  int    `json:"local_size"`
	CrossRank  int    `json:"cross_rank"`
	CrossSize  int    `json:"cross_size"`
	// Spares is how many workers have ranks behind those of the members, from World on: they give
	// the members what they have of the state, and then ask for the next generation.
	Spares int            `json:"spares,omitempty"`
	Token  string         `json:"token"`           // of the generation; Prefetch: its StateToken
	Peers  map[int]string `json:"peers,omitempty"` // of ring neighbours; Prefetch: of some holders
	// Trace is the W3C traceparent of the worker's span in the generation; Prefetch: of its
	// process.
	Trace  string    `json:"trace,omitempty"`
	Cause  string    `json:"cause,omitempty"` // start, worker-failed, grow ...
	Expect *Expected `json:"expect,omitempty"`
}

// Expected is, with Prefetch, the ranks that the newcomer will have if nothing else changes.
type Expected struct {
	Rank      int `json:"rank"`
	World     int `json:"world"`
	LocalRank int `json:"local_rank"`
	LocalSize int `json:"local_size"`
	CrossRank int `json:"cross_rank"`
	CrossSize int `json:"cross_size"`
}

// Kinds of Change.
const (
	ChangePlanned = "planned" // leave at the next commit
	ChangeLost    = "lost"    // a peer is gone: abort the communicator now
	ChangeStop    = "stop"    // the job is being stopped: commit, save, return
	ChangeUndone  = "undone"  // the planned change was cancelled: stay, unless you have left
	// This worker's node will be taken away: save now; a planned change follows if another node can
	// take its place.
	ChangeLeaving = "leaving"
)

// Values of Change.Place.
const (
	PlaceStays  = "stays"
	PlaceLeaves = "leaves" // it is no longer part of the job
)

// Change is a change of the generation that the worker is in.
type Change struct {
	Kind       string `json:"kind"`
	Generation uint64 `json:"generation"`
	Rank       int    `json:"rank"` // lost: which one, -1 = unknown
	Reason     string `json:"reason"`
	Place      string `json:"place,omitempty"` // planned: the worker's own; empty = unknown
	// Until is when the node is gone at the latest; zero = unknown, or not ChangeLeaving.
	Until time.Time `json:"until,omitzero"`
}

// Peer is the data-plane address of a rank.
type Peer struct {
	Rank    int    `json:"rank"`
	Address string `json:"address"`
}

// Report is a progress report. First is set with the first good step of a generation.
type Report struct {
	Generation uint64             `json:"generation"`
	Step       uint64             `json:"step"`
	Samples    uint64             `json:"samples"` // consumed by the whole job, as known here
	Metrics    map[string]float64 `json:"metrics,omitempty"`
	// MetricsStep is the step after which the metrics were reported; they are repeated until there
	// are new ones. Nil = Step.
	MetricsStep *uint64    `json:"metrics_step,omitempty"`
	First       *FirstStep `json:"first,omitempty"`
	// the rank that the others wait for, if there is one
	Slowest *Straggler `json:"slowest,omitempty"`
	// Waited is the part of its time, 0 to 1, for which this rank waited for others in collective
	// operations of late; nil = unknown.
	Waited *float64 `json:"waited,omitempty"`
}

// Straggler is the rank that the others wait for. Share is the part of its time, 0 to 1, by which
// the median rank waits longer.
type Straggler struct {
	Rank  int     `json:"rank"`
	Share float64 `json:"share"`
}

// FirstStep has the durations of the phases of recovery, on the worker's clock.
type FirstStep struct {
	Survivor  bool    `json:"survivor"`
	Lost      uint64  `json:"lost"`      // steps after the last commit that were lost
	AbortMS   float64 `json:"abort_ms"`  // from notice to join
	RejoinMS  float64 `json:"rejoin_ms"` // from join to the connected communicator
	SyncMS    float64 `json:"sync_ms"`   // newest commit agreed on and received
	StepMS    float64 `json:"step_ms"`   // first good step
	SyncBytes uint64  `json:"sync_bytes,omitempty"`
	// Checkpoint is the checkpoint from which this generation was restored because no member held a
	// commit; nil = none.
	Checkpoint *Commit `json:"checkpoint,omitempty"`
}

// What a worker does beside the phases of a recovery, which last from one to the next: each has a
// beginning and an end of its own, and may go on behind the first step.
const (
	SpanGroupEnds     = "group ends"     // the groups of torch.distributed of the generation before
	SpanGroupConnects = "group connects" // those of this one
)

// SpanReport reports such a thing, when it has ended.
type SpanReport struct {
	Generation uint64  `json:"generation"` // that the worker was in, or came to next
	Name       string  `json:"name"`
	AgeMS      float64 `json:"age_ms"` // since it began, on the worker's clock
	MS         float64 `json:"ms"`     // how long it took; at most AgeMS
}

// HashReport reports the hash of a training's state, as tables.StateHash is one, and what the ranks
// have computed since the report before.
type HashReport struct {
	Generation uint64            `json:"generation"` // that the worker is in; 0 = that of its process
	Step       uint64            `json:"step"`       // steps that were made
	Hash       string            `json:"hash"`
	Tensors    map[string]string `json:"tensors,omitempty"` // by name, or name of a group
	Dealt      []DealtSteps      `json:"dealt,omitempty"`
}

// DealtSteps says which ranks have computed the micro-batches of steps in a row.
type DealtSteps struct {
	First      uint64  `json:"first"`
	Last       uint64  `json:"last"`
	Generation uint64  `json:"generation"`      // in which they ended
	Ranks      []int   `json:"ranks"`           // by micro-batch
	Again      *uint64 `json:"again,omitempty"` // had been dealt to a rank that was lost; nil = not known
}

// CommitReport reports a commit and the ledger that is part of it.
type CommitReport struct {
	// Commit is zero in a report that a generation begins with, which has made none.
	Commit Commit `json:"commit"`
	Ledger Ledger `json:"ledger"`
	// Redundancy is nil from a worker that does not know it, or while no commit is whole.
	Redundancy *Redundancy `json:"redundancy,omitempty"`
}

// Redundancy says how much a job can lose without losing its newest whole commit: one that all
// ranks have agreed on, and of which they have everything. It holds in Generation.
type Redundancy struct {
	Generation uint64    `json:"generation"`
	Commit     Commit    `json:"commit"`
	Made       time.Time `json:"made,omitzero"` // by this worker; zero = it has received the commit
	Losses     int       `json:"losses"`        // ranks that may be lost, whichever they are
	NodeLosses int       `json:"node_losses"`   // nodes that may be lost with all of their ranks, whichever they are
	// Checkpoint is the newest one that this worker knows to be written as a whole; nil = none.
	Checkpoint *Commit   `json:"checkpoint,omitempty"`
	Written    time.Time `json:"written,omitzero"` // when the writing began; zero = unknown
}

// DoneReport reports that the work is complete; exit 0 then means success.
type DoneReport struct {
	Generation uint64             `json:"generation"`
	Step       uint64             `json:"step"`
	Ledger     Ledger             `json:"ledger"`
	Metrics    map[string]float64 `json:"metrics,omitempty"`
	// MetricsStep is as in Report.
	MetricsStep *uint64 `json:"metrics_step,omitempty"`
}

// CheckpointRequest asks for space for a checkpoint in the folder of EnvCheckpointDefaultDir.
type CheckpointRequest struct {
	Bytes int64 `json:"bytes"`
}

// Ledger counts the samples that committed steps consumed.
type Ledger struct {
	Samples uint64        `json:"samples"` // size of one epoch
	Epochs  []LedgerEpoch `json:"epochs"`
}

// Add adds what was consumed of an epoch to its account, which it opens if there is none.
func (l *Ledger) Add(x LedgerEpoch) {
	i := slices.IndexFunc(l.Epochs, func(e LedgerEpoch) bool { return e.Epoch == x.Epoch })
	if i < 0 {
		l.Epochs = append(l.Epochs, x)
		return
	}
	e := &l.Epochs[i]
	e.Count += x.Count
	e.Sum += x.Sum
	e.Done = e.Done || x.Done
}

// MarkDone marks the epochs of which all samples were consumed.
func (l *Ledger) MarkDone() {
	for i := range l.Epochs {
		e := &l.Epochs[i]
		e.Done = e.Done || e.Count >= l.Samples
	}
}

// Consumed is the number of samples that were consumed in all epochs.
func (l *Ledger) Consumed() (n uint64) {
	for _, e := range l.Epochs {
		n += e.Count
	}
	return n
}

// LedgerEpoch is the ledger of one epoch.
type LedgerEpoch struct {
	Epoch uint64 `json:"epoch"`
	Count uint64 `json:"count"`
	Sum   uint64 `json:"sum,string"` // sum modulo 2^64 of SampleHash(index)
	Done  bool   `json:"done"`
}

// PreemptRequest announces that this node will be taken away.
type PreemptRequest struct {
	Reason string    `json:"reason,omitempty"`
	Until  time.Time `json:"until,omitzero"` // when it is gone at the latest; zero = unknown
}

// SubmitEnvironment hands the working directory and the environment of a command to an agent of the
// same user, for the workers of the job that the command submits next. The agent refuses it if it
// sees other files, or if the workers run as another user.
type SubmitEnvironment struct {
	Origin string `json:"origin"`         // of the event that submits the job
	Name   string `json:"name"`           // of the job
	Agent  string `json:"agent"`          // incarnation of the agent that is meant
	User   string `json:"user,omitempty"` // of the job's processes; empty = it names none
	Root   FileID `json:"root"`           // of /
	Dir    string `json:"dir"`            // working directory, absolute; empty = forget what was handed over
	DirID  FileID `json:"dir_id"`
	// NAME=VALUE each, any bytes but NUL.
	Variables [][]byte `json:"variables"`
}

// FileID identifies a file or directory as long as it exists: processes for which a path has the
// same one see the same.
type FileID struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// Error is the body of a refused call.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// StateToken derives a newcomer's token from a generation's: it permits fetching the state, but no
// membership.
func StateToken(generation string) string {
	m := hmac.New(sha256.New, []byte(generation))
	m.Write([]byte("state"))
	return hex.EncodeToString(m.Sum(nil)[:16])
}

// SampleHash is the hash of a sample index that ledgers sum: the finaliser of splitmix64 (Steele,
// Lea, Flood 2014).
func SampleHash(index uint64) uint64 {
	z := index + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
