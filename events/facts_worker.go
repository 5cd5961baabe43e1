package events

import (
	"slices"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
)

// Facts of the worker family. The agents write them, with Number 0; the entity is the job.

// WorkerStarted records that a process was started.
type WorkerStarted struct {
	tables.WorkerRef
	StartMS float64 `json:"start_ms"` // duration of the start
}

// WorkerReady records that a worker has made its first good step in a generation (READY). For
// programs that do not report steps the agent publishes it when the process of this generation
// runs, with step 0, and again with the first step that the process reports, if any.
type WorkerReady struct {
	tables.WorkerRef
	Rank      ident.Rank `json:"rank"`
	Step      uint64     `json:"step"`      // the step that was good
	Lost      uint64     `json:"lost"`      // steps after the last commit that were lost
	Survivor  bool       `json:"survivor"`  // it was a member of the previous generation
	AbortMS   float64    `json:"abort_ms"`  // on the worker's clock: from notice of the fault (or of the plan) to join
	RejoinMS  float64    `json:"rejoin_ms"` // from join to the connected communicator
	SyncMS    float64    `json:"sync_ms"`
	StepMS    float64    `json:"step_ms"` // first good step
	SyncBytes uint64     `json:"sync_bytes,omitempty"`
	// Checkpoint is the source of the state if no member held a commit.
	Checkpoint *tables.Commit `json:"checkpoint,omitempty"`
}

// WorkerDone records that a worker reports its work complete (SUCCESS once it has also exited 0).
type WorkerDone struct {
	tables.WorkerRef
	Step    uint64             `json:"step"`
	Ledger  tables.Ledger      `json:"ledger"`
	Metrics map[string]float64 `json:"metrics,omitempty" bound:"names"`
	// MetricSteps holds the step of each metric, if that is not Step.
	MetricSteps map[string]uint64 `json:"metric_steps,omitempty" bound:"names"`
}

// WorkerHashed records the hash of a training's state, as one worker has found it for all.
type WorkerHashed struct {
	tables.WorkerRef
	tables.StateHash
	Tensors map[string]string   `json:"tensors,omitempty" bound:"names"` // those of its tensors, or groups of them, by name
	Dealt   []tables.DealtSteps `json:"dealt,omitempty" bound:"epochs"`  // the steps since the hash before
}

// WorkerExited records the end of a process (SUCCESS or FAILURE).
type WorkerExited struct {
	tables.WorkerRef
	ExitCode int    `json:"exit_code"`                     // -1 if ended by a signal
	Signal   string `json:"signal,omitempty" bound:"word"` // SIGKILL
	OOM      bool   `json:"oom,omitempty"`                 // killed by the kernel for memory
	Done     bool   `json:"done"`                          // it had reported done
	Asked    bool   `json:"asked"`                         // the agent had stopped it: neither success nor failure
	Step     uint64 `json:"step,omitempty"`                // the last one reported
	// It ended with an earlier incarnation of its agent: Agent is the one that found it.
	Orphaned  bool `json:"orphaned,omitempty"`
	Departing bool `json:"departing,omitempty"` // its node's departure was announced: a failure then is not counted
	// Its agent ended it because discovery did not answer, or refused the agent: it may run on
	// another node. Not the fault of the worker.
	LeaseOver bool `json:"lease_over,omitempty"`
	// It could not be started because its node lacked processes, descriptors, memory or disk: the
	// command may be right.
	NodeFault bool          `json:"node_fault,omitempty"`
	Commit    tables.Commit `json:"commit,omitzero"`               // newest one known to its agent
	Detail    string        `json:"detail"`                        // a sentence: killed by signal 9 (SIGKILL)
	Lines     []string      `json:"lines,omitempty" bound:"lines"` // its last lines of output
	Dropped   uint64        `json:"dropped,omitempty"`             // lines of its output that are not in the log, which was too slow
	// Metrics are the newest values that it has reported; MetricSteps
	// holds the step of each, if that is not Step.
	Metrics     map[string]float64 `json:"metrics,omitempty" bound:"names"`
	MetricSteps map[string]uint64  `json:"metric_steps,omitempty" bound:"names"`
	// Exception is what the program itself reported about its end, or nil.
	Exception *tables.Exception `json:"exception,omitempty"`
	AgeMS     float64           `json:"age_ms"` // time from the exit to this fact, on the agent's clock
	// LivedMS is how long its process ran; 0 = it is unknown, or there was none.
	LivedMS float64 `json:"lived_ms,omitempty"`
}

// ProgramFault reports whether the program failed by itself: with an exit code, by one of
// OwnSignals, or by its memory usage. Other signals came from outside.
func (w WorkerExited) ProgramFault() bool {
	return !w.Asked && (w.ExitCode > 0 || w.OOM || slices.Contains(tables.OwnSignals, w.Signal))
}

// CauseKind is the kind of the cause that the exit is if it is a failure.
func (w WorkerExited) CauseKind() CauseKind {
	if w.Exception.SilentCorruption() {
		return CauseSilentCorruption
	}
	return CauseWorkerFailed
}

// Failed reports whether the exit is a failure. With the SDK (inProcess) exit 0 needs done.
func (w WorkerExited) Failed(inProcess bool) bool {
	if w.Asked {
		return false
	}
	if w.ExitCode != 0 {
		return true
	}
	return inProcess && !w.Done
}
