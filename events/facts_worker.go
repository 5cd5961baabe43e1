package events

import (
	"slices"
	"strconv"
	"strings"
)

// Facts of the worker family; written by the agents, unnumbered. The entity is the job.

// WorkerRef says which life of which worker a fact is about.
type WorkerRef struct {
	Job         JobID       `json:"job"`
	Place       Place       `json:"place"`
	Incarnation Incarnation `json:"incarnation"` // of the process
	Agent       Incarnation `json:"agent"`       // of the agent that speaks
	Attempt     int         `json:"attempt"`
	Generation  Generation  `json:"generation"` // that it belonged to; 0 = not yet in any
	PID         int         `json:"pid"`
}

// WorkerStarted says that a process was started.
type WorkerStarted struct {
	WorkerRef
	StartMS float64 `json:"start_ms"` // time that starting took
}

// WorkerReady says that a worker has made its first good step in a generation (READY). For programs
// that do not report steps the agent says it when the process of this generation runs, with step 0,
// and once more with the first step that the process reports, if it does.
type WorkerReady struct {
	WorkerRef
	Rank      int     `json:"rank"`
	Step      uint64  `json:"step"`      // the step that was good
	Lost      uint64  `json:"lost"`      // steps that were made after the last commit and are void
	Survivor  bool    `json:"survivor"`  // was a member of the generation before
	AbortMS   float64 `json:"abort_ms"`  // on the worker's clock: notice of the fault (or of the plan) to asking to rejoin
	RejoinMS  float64 `json:"rejoin_ms"` // asking to rejoin to the communicator standing
	SyncMS    float64 `json:"sync_ms"`
	StepMS    float64 `json:"step_ms"` // first good step
	SyncBytes uint64  `json:"sync_bytes,omitempty"`
	// Checkpoint is where the state came from, because no member held a commit.
	Checkpoint *Commit `json:"checkpoint,omitempty"`
}

// WorkerDone says that a worker reports its work complete (SUCCESS, once its process has also
// exited 0).
type WorkerDone struct {
	WorkerRef
	Step    uint64             `json:"step"`
	Ledger  Ledger             `json:"ledger"`
	Metrics map[string]float64 `json:"metrics,omitempty" bound:"names"`
	// MetricSteps are as in Progress.
	MetricSteps map[string]uint64 `json:"metric_steps,omitempty" bound:"names"`
}

// WorkerExited says how a process ended (SUCCESS or FAILURE).
type WorkerExited struct {
	WorkerRef
	ExitCode  int      `json:"exit_code"`                     // -1 when ended by a signal
	Signal    string   `json:"signal,omitempty" bound:"word"` // SIGKILL
	OOM       bool     `json:"oom,omitempty"`                 // killed by the kernel for memory
	Done      bool     `json:"done"`                          // it had reported done
	Asked     bool     `json:"asked"`                         // the agent had told it to stop: neither success nor failure
	Step      uint64   `json:"step,omitempty"`                // last one it reported
	Orphaned  bool     `json:"orphaned,omitempty"`            // it ended with an earlier life of its agent: Agent is the one that found it
	Departing bool     `json:"departing,omitempty"`           // its node was about to go, as announced: a failure then is nobody's
	Commit    Commit   `json:"commit,omitzero"`               // newest one that its agent knows of
	Detail    string   `json:"detail"`                        // a sentence: killed by signal 9 (SIGKILL)
	Lines     []string `json:"lines,omitempty" bound:"lines"` // its last lines of output
	Dropped   uint64   `json:"dropped,omitempty"`             // lines of its output that are not in the log, which was too slow
	// Metrics are the newest values that it has reported; MetricSteps are as in Progress.
	Metrics     map[string]float64 `json:"metrics,omitempty" bound:"names"`
	MetricSteps map[string]uint64  `json:"metric_steps,omitempty" bound:"names"`
	// Exception is what the program itself said about its end; nil = nothing that is understood.
	Exception *Exception `json:"exception,omitempty"`
	AgeMS     float64    `json:"age_ms"` // time since the exit when this was said, on the agent's clock
}

// OwnSignals are those with which a program ends itself; any other one came from outside.
var OwnSignals = []string{"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP"}

// Exception is what ended a program, as it says itself: in a traceback, in a panic, or in the error
// file of a launcher.
type Exception struct {
	Type     string `json:"type"` // RuntimeError, torch.OutOfMemoryError, panic
	Message  string `json:"message,omitempty"`
	File     string `json:"file,omitempty"` // of the innermost frame of the user's own code, relative to the job's directory if it is in there
	Line     int    `json:"line,omitempty"`
	Function string `json:"function,omitempty"`
	Cause    string `json:"cause,omitempty"` // the exception that this one is a consequence of: KeyError: 'x'
	// Peer: it says that another worker was lost, so it is a consequence of what ended that one.
	Peer     bool    `json:"peer,omitempty"`
	BeforeMS float64 `json:"before_ms,omitempty"` // time from when it was said to the exit
}

// String is the exception in one line: what, where, and why.
func (e Exception) String() string {
	s := e.Type
	if e.Message != "" {
		s += ": " + e.Message
	}
	var parts []string
	if at := e.Where(); at != "" {
		parts = append(parts, at)
	}
	if e.Cause != "" {
		parts = append(parts, "caused by "+e.Cause)
	}
	if len(parts) > 0 {
		s += " (" + strings.Join(parts, ", ") + ")"
	}
	return s
}

// Where is the frame: train.py:13 in main. Empty = it is not known.
func (e Exception) Where() string {
	if e.File == "" {
		return ""
	}
	s := e.File
	if e.Line > 0 {
		s += ":" + strconv.Itoa(e.Line)
	}
	if e.Function != "" {
		s += " in " + e.Function
	}
	return s
}

// ProgramFault tells whether the program failed by itself: with an exit code, by one of OwnSignals,
// or for the memory that it took. Any other signal came from outside.
func (w WorkerExited) ProgramFault() bool {
	return !w.Asked && (w.ExitCode > 0 || w.OOM || slices.Contains(OwnSignals, w.Signal))
}

// Failed tells whether the exit is a failure under the rules of how workers end: with a
// ledger-keeping SDK program (inProcess) exit 0 without done is one.
func (w WorkerExited) Failed(inProcess bool) bool {
	if w.Asked {
		return false
	}
	if w.ExitCode != 0 {
		return true
	}
	return inProcess && !w.Done
}
