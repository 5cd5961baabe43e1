package worker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/agent/workerenv"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

func (t *transition) start(j *job, w *incarnation, m events.LaunchMember) {
	w.phase = starting
	w.startedAt, j.lastStart = t.now, t.now
	t.beginProcess(j, w)
	a := StartProcess{
		Job: w.ref.Job, Place: w.ref.Place, Attempt: w.ref.Attempt, Worker: w.ref.Incarnation, Generation: w.ref.Generation,
		Command: j.launch.Spec.Command, Dir: j.launch.Spec.Workdir,
		Secrets: j.launch.Spec.Secrets, User: j.launch.Spec.Processes.User, Limits: j.launch.Spec.Processes.Limits,
		Inherited: Inherited{SubmitEnvironment: j.launch.Spec.Processes.SubmitEnvironment}, Span: w.process,
	}
	a.Span.Attributes = maps.Clone(a.Span.Attributes) // the driver keeps it
	a.Env, a.Defaults = t.s.cfg.Variables(j.launch, m, workerenv.Process{Incarnation: w.ref.Incarnation, Generation: w.ref.Generation, Traceparent: w.process.Self})
	if j.launch.Spec.Processes.SpareContexts {
		a.Context = new(t.s.cfg.Context(j.launch, m))
	}
	if w.ref.Generation > 0 {
		a.Command = localRank(a.Command, m.LocalRank)
	}
	t.do(a)
}

// localRank replaces a literal ${local_rank} in arguments, as torchrun does.
func localRank(command []string, rank int) []string {
	out := make([]string, len(command))
	for i, a := range command {
		out[i] = strings.ReplaceAll(a, "${local_rank}", strconv.Itoa(rank))
	}
	return out
}

// EnvIncarnation is the variable that identifies a process as a worker's, whatever its process
// group.
const EnvIncarnation = workerprotocol.EnvIncarnation

func (in ProcessStarted) apply(t *transition) {
	j, w := t.s.find(in.Worker)
	if w == nil || w.phase != starting {
		return
	}
	w.phase = running
	w.ref.PID = in.PID
	took := t.now.Sub(w.startedAt)
	t.publish(w, events.WorkerStarted{WorkerRef: w.ref, StartMS: events.Milliseconds(took)}, cmp.Or(w.trace, t.startTrace(j)))
	if !j.inProcess() && w.ref.Generation > 0 {
		w.ready = w.ref.Generation
		t.publishReady(w, 0, took)
		t.launchSpan(j, w)
	}
}

// publishReady publishes that the process of a restart job runs (step 0), or the first step that it
// has reported.
func (t *transition) publishReady(w *incarnation, step uint64, took time.Duration) {
	t.publish(w, events.WorkerReady{
		WorkerRef: w.ref, Rank: w.rank, Step: step, Survivor: w.survivor, AbortMS: events.Milliseconds(w.stopping),
		RejoinMS: events.Milliseconds(w.rejoining), StepMS: events.Milliseconds(took),
	}, w.trace)
}

func (in ProcessFailedToStart) apply(t *transition) {
	j, w := t.s.find(in.Worker)
	if w == nil || w.phase != starting {
		return
	}
	x := events.WorkerExited{ExitCode: in.ExitCode, Detail: "cannot start: " + in.Detail, NodeFault: in.NodeFault}
	if in.NodeFault { // it says nothing about the command, as the codes of a shell do
		x.ExitCode, x.Detail = exitNodeFault, "the node has not what it takes to start a process: "+in.Detail
	}
	t.endIncarnation(j, w, x, 0)
}

// exitNodeFault is the exit code of a worker that its node was not able to start.
const exitNodeFault = 125

// apply handles the end of a process. The end by a SIGTERM that this agent did not send is held
// briefly: it may be the first sign of a departure.
func (in ProcessExited) apply(t *transition) {
	j, w := t.s.find(in.Worker)
	if w == nil || !w.alive() || w.heldExit != nil {
		return
	}
	if in.Signal == "SIGTERM" && !w.stopRequested && !t.s.departing && !t.s.stopping {
		w.heldExit, w.heldAt = &in, t.now
		return
	}
	t.recordExit(j, w, in)
}

// releaseExits records the held exits of a job as soon as their kind is known.
func (t *transition) releaseExits(j *job) {
	for _, slot := range j.slots() {
		w := j.incarnations[slot]
		if w.heldExit == nil {
			continue
		}
		if t.s.departing || t.s.stopping || w.stopRequested || !t.now.Before(w.heldAt.Add(holdExit)) {
			in := *w.heldExit
			w.heldExit = nil
			in.Age += t.now.Sub(w.heldAt)
			t.recordExit(j, w, in)
		}
	}
}

// examine asks for the process of a rank that others have lost, or, with -1, for all that have not
// left a generation that is over.
func (t *transition) examine(j *job, g ident.Generation, rank ident.Rank) {
	if !j.inProcess() {
		return
	}
	for _, slot := range j.slots() {
		w := j.incarnations[slot]
		if w.ref.Generation == g && t.mayDie(w) && (rank < 0 || rank == w.rank) {
			t.do(ExamineProcess{Worker: w.ref.Incarnation})
		}
	}
}

// mayDie reports whether the end of a worker now would be a failure of its generation.
func (t *transition) mayDie(w *incarnation) bool {
	return w.phase == running && w.member() && !w.done && !w.stopRequested && !w.dying && w.heldExit == nil
}

// apply reports a member that is certain to end as lost, so that the others need not wait until it
// has. How it ended is recorded then.
func (in ProcessDying) apply(t *transition) {
	j, w := t.s.find(in.Worker)
	if w == nil || !j.inProcess() || !t.mayDie(w) {
		return
	}
	w.dying = true
	x := events.WorkerExited{WorkerRef: w.ref, ExitCode: in.ExitCode, Signal: in.Signal, Step: w.progress.Step, Commit: w.commit}
	switch {
	case in.Signal != "":
		x.ExitCode, x.Detail = -1, killedBy(in.Number, in.Signal)
	case in.ExitCode != 0:
		x.Detail = fmt.Sprintf("exit code %d", in.ExitCode)
	default:
		x.Detail = "its process is ending"
	}
	x.Departing = t.s.departing || t.s.stopping
	t.do(SendNotice{Notice: events.Notice{Exited: x, Rank: w.rank}})
	t.pushLostToAll(j, w.ref.Generation, w.rank, x.Detail)
}

func killedBy(number int, signal string) string {
	return fmt.Sprintf("killed by signal %d (%s)", number, signal)
}

// recordExit publishes how a process ended, and ends its incarnation.
func (t *transition) recordExit(j *job, w *incarnation, in ProcessExited) {
	x := events.WorkerExited{ExitCode: in.ExitCode, Signal: in.Signal, OOM: in.OOM, Lines: in.Lines, Dropped: in.Dropped}
	if e := in.Exception; e != nil && t.explains(w, in) {
		x.Exception = new(*e)
	}
	switch {
	case w.leaseFailure && in.Signal == "SIGKILL":
		x.LeaseOver, x.Detail = true, "ended by its agent: "+w.leaseOver
	case in.OOM:
		x.Detail = "killed by the kernel for lack of memory"
	case in.Signal != "":
		x.Detail = killedBy(in.Number, in.Signal)
	case in.ExitCode == 0 && j.inProcess() && !w.done && w.verdict == "" && !w.stopRequested:
		x.Detail = "exit code 0, but it had not reported that its work is done"
	default:
		x.Detail = fmt.Sprintf("exit code %d", in.ExitCode)
	}
	if x.Exception != nil { // the user needs it most
		x.Detail = limits.Shorten(x.Exception.String(), limits.Text.Max-len(x.Detail)-2) + ", " + x.Detail
	}
	t.endIncarnation(j, w, x, in.Age)
}

// explains reports whether what a program printed about its end is the reason for it. A worker that
// was stopped may have been about to fail by itself; what it prints after the stop is a
// consequence. A worker that was killed from outside printed nothing about that.
func (t *transition) explains(w *incarnation, in ProcessExited) bool {
	if w.stopRequested {
		printed := t.now.Add(-in.Age - time.Duration(in.Exception.BeforeMS*float64(time.Millisecond)))
		return printed.Before(w.stoppedAt)
	}
	return in.ExitCode > 0 || slices.Contains(tables.OwnSignals, in.Signal)
}

// endIncarnation ends an incarnation: a failure is first sent as a notice, then pushed to its peers
// on this node, then published.
func (t *transition) endIncarnation(j *job, w *incarnation, x events.WorkerExited, age time.Duration) {
	member := w.member()
	if w.phase == running {
		x.LivedMS = events.Milliseconds(max(0, t.now.Add(-age).Sub(w.startedAt)))
	}
	w.phase, w.join = ended, nil
	w.endedAt = t.now
	if w.progressPending {
		t.sendProgress(w)
	}
	x.Detail, x.Lines = limits.Shorten(x.Detail, limits.Text.Max), limits.ShortenLines(x.Lines)
	x.WorkerRef, x.Done, x.Step, x.Commit, x.AgeMS = w.ref, w.done, w.progress.Step, w.commit, events.Milliseconds(age)
	x.Asked = w.stopRequested && !w.leaseFailure || w.verdict != "" && x.ExitCode == 0
	x.Departing = t.s.departing || t.s.stopping
	x.Metrics, x.MetricSteps = w.metrics(x.Step)
	trace, failed := t.startTrace(j), x.Failed(j.inProcess())
	if failed {
		trace = t.exitTrace(j, w)
		if !w.aside() || w.ready > 0 {
			w.failedIn = trace
		}
		rank := w.rank
		if !member {
			rank = ident.NoRank
		}
		t.do(SendNotice{Notice: events.Notice{Exited: x, Rank: rank}})
		if member {
			t.pushLostToAll(j, w.ref.Generation, rank, x.Detail)
		}
		t.detectSpan(w, trace, age, x)
	}
	t.endProcess(w, t.now.Add(-age), x, failed)
	t.publish(w, x, trace)
}

// apply records a process that an earlier incarnation of this agent has left, so that no
// replacement is started until the launch sets the next attempt.
func (in Orphaned) apply(t *transition) {
	j := t.job(in.Job)
	if w := j.incarnations[in.Place.Slot]; w != nil && (w.alive() || w.ref.Attempt >= in.Attempt) {
		return
	}
	w := &incarnation{phase: ended, rank: -1, endedAt: t.now, ref: tables.WorkerRef{
		Job: in.Job, Place: in.Place, Incarnation: in.Worker, Agent: t.s.cfg.Agent, Attempt: in.Attempt,
		Generation: in.Generation, PID: in.PID,
	}}
	j.incarnations[in.Place.Slot] = w
	x := events.WorkerExited{
		WorkerRef: w.ref, ExitCode: -1, Signal: "SIGKILL", Orphaned: true,
		Detail: "ended together with its node's agent, which was started again",
	}
	t.do(SendNotice{Notice: events.Notice{Exited: x, Rank: -1}})
	t.orphanSpan(in.Span, w, x)
	t.publish(w, x, t.exitTrace(j, w))
}

func (t *transition) publish(w *incarnation, b events.Body, trace string) {
	t.do(PublishFact{Job: w.ref.Job, Body: b, Trace: trace})
}

// startTrace returns the trace of the open incident, or of the job's start.
func (t *transition) startTrace(j *job) string {
	if j.launch.Trace != "" {
		return j.launch.Trace
	}
	return tracing.JobTrace(j.launch.Job)
}

// exitTrace returns the trace of the incident that an exit belongs to: a member that was ready
// opens the one of its generation; all others belong to the open one. Where none is open, the exit
// of a newcomer is in the trace of its process.
func (t *transition) exitTrace(j *job, w *incarnation) string {
	switch {
	case w.ready > 0 && w.ready == w.ref.Generation:
		return tracing.IncidentTrace(w.ref.Job, w.ready)
	case w.ready == 0 && w.aside() && j.trains():
		return w.process.Self
	case j.launch.Trace != "":
		return j.launch.Trace
	case w.ready > 0:
		return tracing.IncidentTrace(w.ref.Job, w.ready)
	}
	return tracing.JobTrace(w.ref.Job)
}

func (t *transition) pushLostToAll(j *job, g ident.Generation, rank ident.Rank, reason string) {
	if !j.inProcess() {
		return
	}
	for _, slot := range j.slots() {
		if w := j.incarnations[slot]; w.ref.Generation == g {
			t.pushLost(w, rank, reason)
		}
	}
}

// pushLost notifies a member once per rank. An unknown rank is not pushed to a member that knows of
// a loss.
func (t *transition) pushLost(w *incarnation, rank ident.Rank, reason string) {
	if rank == w.rank {
		rank = -1 // its peers have lost it: there is no rank to give
	}
	if !w.member() || w.dying || slices.Contains(w.pushed.lost, rank) || rank < 0 && len(w.pushed.lost) > 0 {
		return
	}
	w.pushed.lost = append(w.pushed.lost, rank)
	t.pushChange(w, workerprotocol.ChangeLost, rank, reason)
}
