// Package tables defines the members of a generation and the workers of a job, and encodes long
// lists of them as tables.
package tables

import (
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/ident"
)

// WorkerRef identifies the worker incarnation of a fact.
type WorkerRef struct {
	Job         ident.JobID       `json:"job"`
	Place       ident.Place       `json:"place"`
	Incarnation ident.Incarnation `json:"incarnation"` // of the process
	Agent       ident.Incarnation `json:"agent"`       // of the agent that publishes the fact
	Attempt     int               `json:"attempt"`     // number of the incarnation in this place, from 1
	Generation  ident.Generation  `json:"generation"`  // its generation; 0 = not yet in any
	PID         int               `json:"pid"`
}

// Exception is the error that ended a program: from a traceback, a panic, or an error file.
type Exception struct {
	Type    string `json:"type"` // RuntimeError, torch.OutOfMemoryError, panic
	Message string `json:"message,omitempty"`
	// Of the innermost frame of the user's own code, relative to the job's directory if inside it.
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Function string `json:"function,omitempty"`
	Cause    string `json:"cause,omitempty"` // the exception that this one is a consequence of: KeyError: 'x'
	// Peer: the error is the loss of another worker, so it is a consequence of that worker's end.
	Peer     bool    `json:"peer,omitempty"`
	BeforeMS float64 `json:"before_ms,omitempty"` // time from its output to the exit
}

// OwnSignals are the signals by which a program ends itself; others come from outside.
var OwnSignals = []string{"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP"}

// SilentCorruption reports whether the exception is that of a worker whose results are not those of
// the others (regroup.errors): its processor, GPU or memory is at fault.
func (e *Exception) SilentCorruption() bool {
	return e != nil && strings.HasSuffix(e.Type, "SilentCorruptionError")
}

// String returns the exception in one line: what, where, and why.
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

// Where returns the frame: train.py:13 in main. Empty = unknown.
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

// Commit names a committed state: ordered by (Generation, Step).
type Commit struct {
	Generation ident.Generation `json:"generation"`
	Step       uint64           `json:"step"`
	Hash       string           `json:"hash,omitempty" bound:"word"`
}

// Newer reports whether c is newer than d.
func (c Commit) Newer(d Commit) bool {
	if c.Generation != d.Generation {
		return c.Generation > d.Generation
	}
	return c.Step > d.Step
}

// Member is a worker slot in a generation. Ranks are Horovod's: global, on the node, and among the
// nodes with this local rank.
type Member struct {
	Place       ident.Place       `json:"place"`
	Incarnation ident.Incarnation `json:"incarnation"`     // of the worker; under restart recovery of the process that will be started
	Agent       ident.Incarnation `json:"agent,omitempty"` // of the node's agent when it joined
	Attempt     int               `json:"attempt"`
	Rank        ident.Rank        `json:"rank"`
	LocalRank   int               `json:"local_rank"`
	LocalSize   int               `json:"local_size"`
	CrossRank   int               `json:"cross_rank"`
	CrossSize   int               `json:"cross_size"`
	Address     string            `json:"address,omitempty" bound:"word"` // data-plane host:port
	Commit      Commit            `json:"commit"`                         // the newest one when it joined
	PID         int               `json:"pid,omitempty"`
}

// WorkerState is the registry's state of one worker.
type WorkerState string

// Worker states. READY, SUCCESS and FAILURE are Horovod's worker registry.
const (
	WorkerStateStarting  WorkerState = "starting"
	WorkerStateRunning   WorkerState = "running" // the process runs, no good step yet in this generation
	WorkerStateReady     WorkerState = "ready"
	WorkerStateDone      WorkerState = "done"
	WorkerStateSucceeded WorkerState = "success"
	WorkerStateFailed    WorkerState = "failure"
	WorkerStateLost      WorkerState = "lost"
	WorkerStateStopped   WorkerState = "stopped"
)

// Ended reports whether the worker's end is known.
func (s WorkerState) Ended() bool {
	switch s {
	case WorkerStateSucceeded, WorkerStateFailed, WorkerStateLost, WorkerStateStopped:
		return true
	}
	return false
}

// WorkerView is one worker of a job.
type WorkerView struct {
	WorkerRef
	Rank   ident.Rank  `json:"rank"` // in Generation
	State  WorkerState `json:"state"`
	Detail string      `json:"detail,omitempty"`
	Lines  []string    `json:"lines,omitempty"` // last output of a failed worker

	Exception *Exception `json:"exception,omitempty"` // what the program reported about its end
	FailedAt  time.Time  `json:"failed_at,omitzero"`  // in JobView.FirstError: when it failed, by the broker's clock
}
