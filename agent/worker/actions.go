package worker

import (
	"github.com/regroup-io/regroup/agent/workerenv"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// Action is an operation that the shell must perform: a closed sum. None of them may block the
// shell.
type Action interface{ action() }

// StartProcess starts a worker; answered by ProcessStarted and later ProcessExited, or by
// ProcessFailedToStart.
type StartProcess struct {
	Job        ident.JobID
	Place      ident.Place
	Attempt    int
	Worker     ident.Incarnation
	Generation ident.Generation // 0 = in-process recovery: it will join by itself
	Command    []string
	Env        map[string]string // overrides the agent's own; the shell adds the socket's token
	Defaults   map[string]string // for names that neither the job nor the agent sets
	Secrets    map[string]string // sources of further variables by name, see spec.Job
	Dir        string            // empty = the agent's own, or the home of another user
	User       string            // see spec.Processes; empty = the agent's default
	Account    *Account          // that user, which the shell finds; nil = the agent's own
	Inherited
	Limits  spec.ProcessLimits
	Span    events.Span        // of the process, without its end, for Orphaned
	Context *workerenv.Context // that a spare must have which becomes this process; nil = none
}

// SignalProcess sends a signal to the whole process group of a worker.
type SignalProcess struct {
	Worker ident.Incarnation
	Signal string // SIGTERM
}

// KillProcess kills the whole process group of a worker.
type KillProcess struct{ Worker ident.Incarnation }

// KeepSpares has so many spares of a job kept: Python interpreters that have imported their
// modules, and that the processes of workers are made of. A name that ends with ? may be missing.
// Answered by SparesKept whenever that changes.
type KeepSpares struct {
	Job      ident.JobID
	Request  int // its number
	Count    int // 0 = end them
	Preload  []string
	Contexts []workerenv.Context // that they have, in turn; nil = they do not touch a GPU
	Command  []string            // of the workers, which begins with the interpreter
	Env      map[string]string
	Defaults map[string]string
	Dir      string
	User     string // like Account and Limits as in StartProcess
	Account  *Account
	Inherited
	Limits spec.ProcessLimits
}

// Inherited is what the processes of a job inherit.
type Inherited struct {
	// Name of the environment in which the job was submitted; see spec.Processes. Empty = the
	// processes inherit the agent's.
	SubmitEnvironment string
	// That environment, which the shell finds: NAME=VALUE each; nil = the agent's.
	Variables []string
}

// ExamineProcess asks whether a worker that others have lost is certain to end; answered by
// ProcessDying if that becomes known soon.
type ExamineProcess struct{ Worker ident.Incarnation }

// PrepareMaster asks for what MASTER_ADDR and MASTER_PORT of the next generation may be: a port of
// the advertised host that is free, or at which a store is served; answered by MasterPrepared.
type PrepareMaster struct {
	Job   ident.JobID
	Store spec.Store
}

// ReleaseMaster ends what PrepareMaster has begun.
type ReleaseMaster struct{ Address string }

// SendJoin makes one call to the rendezvous; answered by JoinAnswered. The machine decides whether
// to repeat it.
type SendJoin struct{ Join events.MemberJoin }

// AnswerJoin ends the worker's long poll if there is one. Otherwise it is dropped, and the worker's
// next join is answered again.
type AnswerJoin struct {
	Worker     ident.Incarnation
	Assignment workerprotocol.Assignment
}

// RefuseJoin fails the worker's call of join.
type RefuseJoin struct {
	Worker ident.Incarnation
	Code   errcode.Code
	Reason string
}

// PushChange queues a change for the worker until it polls. Each is delivered once.
type PushChange struct {
	Worker ident.Incarnation
	Change workerprotocol.Change
}

// PublishFact stores a fact, in order, however long it takes.
type PublishFact struct {
	Job   ident.JobID
	Body  events.Body
	Trace string // W3C traceparent
}

// SendNotice sends a failure notice at once; it may be lost.
type SendNotice struct{ Notice events.Notice }

// SendProgress sends a progress signal; it may be lost.
type SendProgress struct{ Progress events.Progress }

// RecordSpan emits a span.
type RecordSpan struct{ Span events.Span }

func (StartProcess) action()   {}
func (SignalProcess) action()  {}
func (KillProcess) action()    {}
func (KeepSpares) action()     {}
func (ExamineProcess) action() {}
func (PrepareMaster) action()  {}
func (ReleaseMaster) action()  {}
func (SendJoin) action()       {}
func (AnswerJoin) action()     {}
func (RefuseJoin) action()     {}
func (PushChange) action()     {}
func (PublishFact) action()    {}
func (SendNotice) action()     {}
func (SendProgress) action()   {}
func (RecordSpan) action()     {}
