package worker

import (
	"cmp"
	"strconv"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// The spans of a worker. Their ids are derived, so that the program can begin its own spans below
// them before they have ended, and the agent records them when they have, whatever the program was
// able to say:
//
//	worker process    from the start of the process to its exit
//	generation g2     with in-process recovery, from the assignment until the worker has left it
//
// Both are in the trace of what began them: the start of the job, or an incident. The process of a
// newcomer to a job that trains is started before the incident in which it joins, if there will be
// one, so it has a trace of its own.
const (
	spanProcess    = "worker process"
	spanGeneration = "generation "
	spanLaunch     = "regroup launch"
	serviceWorker  = "worker"
)

// beginProcess begins the span of a worker's process. One that replaces a failed worker of this
// node is in the trace of the incident that the failure began, which may have ended already.
func (t *transition) beginProcess(j *job, w *incarnation) {
	parent := w.replaces
	switch {
	case parent != "":
	case w.trace != "":
		parent = w.trace
	case j.trains():
		w.process = t.begin(w, spanProcess, "", tracing.WorkerTrace(w.ref.Incarnation))
		return
	default:
		parent = t.startTrace(j)
	}
	w.process = t.begin(w, spanProcess, parent, tracing.Child(parent, "process", string(w.ref.Incarnation)))
}

// trains reports whether the launch is of a generation that has made a good step: its trace is that
// of the next incident, which has not begun.
func (j *job) trains() bool {
	l := j.launch
	return l.Phase == events.PhaseRun && l.Generation > 0 && l.Trace == tracing.IncidentTrace(l.Job, l.Generation)
}

// formationTrace returns the trace of what began the generation of a launch, whenever the launch is
// published again: of the next incident once the generation has made a good step. "" = no launch
// before that step has arrived here.
func (j *job) formationTrace() string {
	if j.launch.Phase != events.PhaseStop && j.formed.generation == j.launch.Generation {
		return j.formed.trace
	}
	return ""
}

// aside reports whether a worker's process has a trace of its own.
func (w *incarnation) aside() bool { return w.process.Self != "" && w.process.Parent == "" }

// beginGeneration begins the span of a worker's part in a generation. It is below the span of the
// process in the trace that the process was started in; later ones lead to it by a link.
func (t *transition) beginGeneration(w *incarnation) {
	parent, links := w.trace, []string{w.process.Self}
	if tracing.TraceID(parent) == tracing.TraceID(w.process.Self) {
		parent, links = w.process.Self, nil
	}
	self := tracing.Child(w.trace, "generation", string(w.ref.Incarnation), w.ref.Generation.String())
	w.generation = t.begin(w, spanGeneration+w.ref.Generation.String(), parent, self)
	w.generation.Links = links
}

func (t *transition) begin(w *incarnation, name, parent, self string) events.Span {
	s := t.span(w, serviceWorker, name, parent, t.now, time.Time{})
	s.Self = self
	return s
}

// span returns a span about a worker.
func (t *transition) span(w *incarnation, service, name, parent string, start, end time.Time) events.Span {
	s := events.Span{Service: service, Name: name, Parent: parent, Start: start, End: end, Attributes: map[string]string{}}
	describe(s.Attributes, w)
	return s
}

// describe sets the attributes that name a worker.
func describe(attributes map[string]string, w *incarnation) {
	attributes["regroup.job.id"] = string(w.ref.Job)
	attributes["regroup.node"] = string(w.ref.Place.Node)
	attributes["regroup.place"] = w.ref.Place.String()
	attributes["regroup.attempt"] = strconv.Itoa(w.ref.Attempt)
	attributes["regroup.generation"] = w.ref.Generation.String()
	attributes["regroup.rank"] = strconv.Itoa(int(w.rank))
	if w.ref.PID > 0 {
		attributes["process.pid"] = strconv.Itoa(w.ref.PID)
	}
}

// explain sets the attributes that tell how a process has ended.
func explain(attributes map[string]string, x events.WorkerExited) {
	attributes["process.exit.code"] = strconv.Itoa(x.ExitCode)
	attributes["regroup.exit.reason"] = x.Detail
	if x.Signal != "" {
		attributes["regroup.exit.signal"] = x.Signal
	}
	if x.OOM {
		attributes["regroup.exit.oom"] = "true"
	}
	if x.Asked {
		attributes["regroup.exit.asked"] = "true"
	}
}

// endProcess records the exit of a process, which was at a time.
func (t *transition) endProcess(w *incarnation, at time.Time, x events.WorkerExited, failed bool) {
	t.end(w, &w.generation, at, &x, failed)
	t.end(w, &w.process, at, &x, failed)
}

// end records a span that ends at a time, unless it was recorded. x is how the process has ended;
// nil = it goes on.
func (t *transition) end(w *incarnation, s *events.Span, at time.Time, x *events.WorkerExited, failed bool) {
	if s.Self == "" {
		return
	}
	done := *s
	s.Self = ""
	if done.End = at; at.Before(done.Start) {
		done.End = done.Start
	}
	describe(done.Attributes, w)
	if x != nil {
		explain(done.Attributes, *x)
		if failed {
			done.Error = x.Detail
		}
	}
	t.do(RecordSpan{Span: done})
}

// detectSpan emits the span of the detection of an exit, which leads to what the worker did.
func (t *transition) detectSpan(w *incarnation, trace string, age time.Duration, x events.WorkerExited) {
	s := t.span(w, events.ServiceAgent, "detect worker.exited", trace, t.now.Add(-age), t.now)
	s.Error = x.Detail
	explain(s.Attributes, x)
	for _, l := range []string{w.generation.Self, w.process.Self} {
		if l != "" {
			s.Links = append(s.Links, l)
		}
	}
	t.do(RecordSpan{Span: s})
}

// launchSpan emits the span from a launch to the start of a worker, or to its assignment.
func (t *transition) launchSpan(j *job, w *incarnation) {
	t.do(RecordSpan{Span: t.span(w, events.ServiceAgent, spanLaunch, w.trace, j.launchedAt, t.now)})
}

// recoverySpans emits the phases of a worker's recovery, laid out backwards from now: the worker's
// clock may differ, its durations do not. A newcomer may have waited for its ranks since long
// before the incident in which it gets them.
func (t *transition) recoverySpans(w *incarnation, f workerprotocol.FirstStep) {
	parts := []struct {
		name string
		ms   float64
	}{{"abort and restore", f.AbortMS}, {"rejoin", f.RejoinMS}, {"sync", f.SyncMS}, {"first step", f.StepMS}}
	from := t.now
	for _, p := range parts {
		from = from.Add(-millis(p.ms))
	}
	for _, p := range parts {
		if millis(p.ms) > 0 {
			s := t.span(w, serviceWorker, p.name, w.trace, from, from.Add(millis(p.ms)))
			from = s.End
			if assigned := w.generation.Start; !f.Survivor && w.generation.Parent == w.trace && s.Start.Before(assigned) && s.End.After(assigned) {
				s.Start = assigned
			}
			t.do(RecordSpan{Span: s})
		}
	}
}

// maxSpans is how many spans of its own a worker may have in a generation.
const maxSpans = 16

// apply records what a worker has done beside the phases of a recovery. It is laid out from now by
// its age: the worker's clock may differ.
func (in WorkerSpanned) apply(t *transition) {
	r := in.Report
	_, w := t.reporterOf(in.Worker, r.Generation)
	if w == nil || w.trace == "" {
		return
	}
	if w.spansIn != w.ref.Generation {
		w.spansIn, w.spans = w.ref.Generation, 0
	}
	if w.spans++; w.spans > maxSpans {
		return
	}
	from := t.now.Add(-millis(r.AgeMS))
	t.do(RecordSpan{Span: t.span(w, serviceWorker, r.Name, w.trace, from, from.Add(millis(r.MS)))})
}

// orphanSpan records the end of a process that an earlier incarnation of this agent has left. When
// it ended is not known: not after now.
func (t *transition) orphanSpan(s events.Span, w *incarnation, x events.WorkerExited) {
	if s.Self == "" {
		return
	}
	if s.Attributes == nil {
		s.Attributes = map[string]string{}
	}
	w.process = s
	t.endProcess(w, t.now, x, true)
}

// traceparent returns the traceparent for what a worker does now.
func (w *incarnation) traceparent() string {
	return cmp.Or(w.generation.Self, w.process.Self)
}
