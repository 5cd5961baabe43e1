package worker

import (
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// Input is an event: a closed sum. Workers are identified by their incarnation. The method of each
// applies it; those that have no other home are below.
type Input interface{ apply(*transition) }

// Launched is a launch event, new, repeated or old.
type Launched struct{ Launch events.Launch }

// ProcessStarted reports that StartProcess has succeeded.
type ProcessStarted struct {
	Worker ident.Incarnation
	PID    int
}

// ProcessFailedToStart reports that StartProcess has failed.
type ProcessFailedToStart struct {
	Worker   ident.Incarnation
	ExitCode int    // as in a shell: 127 no such command, 126 not executable
	Detail   string // without a leading "cannot start"
	// The node lacks what it takes to start any process.
	NodeFault bool
}

// ProcessExited reports that a started process and its whole group have ended.
type ProcessExited struct {
	Worker   ident.Incarnation
	ExitCode int    // -1 if ended by a signal
	Signal   string // SIGKILL
	Number   int    // of the signal
	OOM      bool   // killed by the kernel for memory
	Lines    []string
	Dropped  uint64        // lines of output that were not kept
	Age      time.Duration // since the exit

	Exception *tables.Exception // what the program printed about its end, or nil
}

// ProcessDying reports that a running process is certain to end, though it cannot be waited for
// yet. ProcessExited follows. Without a signal and with ExitCode 0 it is unknown how it ends.
type ProcessDying struct {
	Worker   ident.Incarnation
	ExitCode int
	Signal   string // SIGKILL
	Number   int    // of the signal
}

// Orphaned reports that a process of this agent's earlier incarnation was found, and fenced or
// found dead.
type Orphaned struct {
	Job        ident.JobID
	Place      ident.Place
	Attempt    int
	Worker     ident.Incarnation
	Generation ident.Generation
	PID        int
	Span       events.Span // StartProcess.Span, if it is known
}

// SparesKept answers KeepSpares.
type SparesKept struct {
	Job     ident.JobID
	Request int    // the one that is answered
	Ready   int    // that have done all that they were asked to
	Problem string // the newest one of a spare that cannot become ready; empty = none since KeepSpares
}

// MasterPrepared answers PrepareMaster.
type MasterPrepared struct {
	Job     ident.JobID
	Address string // host:port; empty = none was found
}

// WorkerJoined is a worker's call of join. It is idempotent.
type WorkerJoined struct {
	Worker  ident.Incarnation
	Request workerprotocol.JoinRequest
}

// WorkerReported is a worker's call of report.
type WorkerReported struct {
	Worker ident.Incarnation
	Report workerprotocol.Report
}

// WorkerCommitted is a worker's call of commit.
type WorkerCommitted struct {
	Worker ident.Incarnation
	Report workerprotocol.CommitReport
}

// WorkerFinished is a worker's call of done.
type WorkerFinished struct {
	Worker ident.Incarnation
	Report workerprotocol.DoneReport
}

// WorkerSpanned is a worker's call of span.
type WorkerSpanned struct {
	Worker ident.Incarnation
	Report workerprotocol.SpanReport
}

// WorkerHashed is a worker's call of hash.
type WorkerHashed struct {
	Worker ident.Incarnation
	Report workerprotocol.HashReport
}

// JoinAnswered is the result of SendJoin. Refused is empty if the answer is valid.
type JoinAnswered struct {
	Worker  ident.Incarnation
	Waiting events.MemberWaiting
	Refused errcode.Code
	Reason  string
}

// NoticeHeard is a failure notice about a worker of any node.
type NoticeHeard struct{ Notice events.Notice }

// AbandonHeard is the rendezvous' signal that a generation is over.
type AbandonHeard struct{ Abandon events.Abandon }

// Tick reports that a deadline has come.
type Tick struct{}

// LeaseRenewed tells until when processes may run; see lease. Reason says why it ends then, unless
// it is renewed again.
type LeaseRenewed struct {
	Restart, InPlace time.Time
	Reason           string
}

// LeaseLost ends processes at once: those of recovery by restart, because discovery has declared
// this node lost meanwhile, or all, because the broker refuses this agent.
type LeaseLost struct {
	All    bool
	Reason string
}

// Departing announces the node's end: workers that can save are notified, and later exits are no
// counted failures.
type Departing struct{ Departure events.Departure }

// Shutdown ends all workers, as if every job were stopped; nothing starts any more.
type Shutdown struct {
	Now bool // without grace
}

func (Tick) apply(*transition) {}

func (in Departing) apply(t *transition) { t.s.departing, t.s.departure = true, in.Departure }

func (in Shutdown) apply(t *transition) {
	t.s.stopping = true
	t.s.immediate = t.s.immediate || in.Now
}
