package job

import (
	"strconv"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/events/tracing"
)

// Attributes of spans.
const (
	attrJob        = "regroup.job.id"
	attrGeneration = "regroup.generation"
	attrRank       = "regroup.rank"
	attrNode       = "regroup.node"
	attrIncident   = "regroup.incident"
	attrCause      = "regroup.incident.cause"
	attrSilence    = "regroup.incident.silence_ms" // before it, for which nobody had observed a step
	attrExit       = "process.exit.code"
	attrPID        = "process.pid"
)

func (t *transition) span(s events.Span) {
	s.Service = events.ServiceRegistry
	if s.Attributes == nil {
		s.Attributes = map[string]string{}
	}
	s.Attributes[attrJob] = string(t.View.Job)
	t.d.Spans = append(t.d.Spans, s)
}

// incidentTrace returns the trace of the open incident, or the other one if there is none.
func (t *transition) incidentTrace(other string) string {
	if t.View.OpenIncident != nil {
		return t.View.OpenIncident.Trace
	}
	return other
}

func (t *transition) exitSpan(b events.WorkerExited) {
	t.span(events.Span{
		Name: "process worker.exited", Parent: t.in.Trace, Start: t.now, End: t.now, Error: b.Detail,
		Attributes: map[string]string{
			attrGeneration: number(b.Generation), attrNode: string(b.Place.Node),
			attrExit: strconv.Itoa(b.ExitCode), attrPID: strconv.Itoa(b.PID),
		},
	})
}

// nodeSpan emits the spans of discovery's loss of a node and of the registry's reaction. Both
// belong to the incident, or to the job's start before the first good step. Discovery cannot emit
// its span there, because it knows no jobs.
func (t *transition) nodeSpan(node ident.NodeID, inc ident.Incarnation, why string) {
	parent := tracing.JobTrace(t.View.Job)
	if t.LastGood > 0 {
		parent = tracing.IncidentTrace(t.View.Job, t.LastGood)
	}
	parent = t.incidentTrace(parent)
	observed := t.now
	if at := t.in.Time; !at.IsZero() && at.Before(observed) {
		observed = at
	}
	verdict := events.Span{
		Service: events.ServiceDiscovery, Name: "node.lost", Parent: parent, Start: observed, End: observed, Error: why,
		Attributes: map[string]string{attrJob: string(t.View.Job), attrNode: string(node)},
	}
	if inc != "" {
		verdict.Links = []string{tracing.NodeTrace(node, inc)}
	}
	t.d.Spans = append(t.d.Spans, verdict)
	t.span(events.Span{
		Name: "process node.lost", Parent: parent, Start: t.now, End: t.now, Error: why,
		Attributes: map[string]string{attrGeneration: number(t.View.Generation), attrNode: string(node)},
	})
}

func (t *transition) verdictSpan(kind string, w *tables.WorkerView) {
	t.span(events.Span{Name: "verdict job." + kind, Parent: t.incidentTrace(t.in.Trace), Start: t.now, End: t.now, Attributes: map[string]string{
		attrGeneration: number(t.View.Generation), attrNode: string(w.Place.Node), attrRank: strconv.Itoa(int(w.Rank)),
	}})
}

// startSpan emits the root span of a job's start, from submit to first good step. If the client has
// its own trace, the span is emitted there too.
func (t *transition) startSpan(g ident.Generation) {
	start := events.Span{
		Name: "job start", Self: tracing.JobTrace(t.View.Job), Start: t.View.Submitted, End: t.now,
		Attributes: map[string]string{attrGeneration: number(g)},
	}
	if t.Client != "" {
		start.Links = []string{t.Client}
	}
	t.span(start)
	if t.Client != "" {
		t.span(events.Span{
			Name: "start of job " + string(t.View.Job), Parent: t.Client, Start: t.View.Submitted, End: t.now,
			Attributes: map[string]string{attrGeneration: number(g)}, Links: []string{tracing.JobTrace(t.View.Job)},
		})
	}
}

// incidentSpan emits the root span of an incident, which ended at a time. It leads to the trace of
// the job's start by a link, as those of all incidents of the job do. The processes have
// emitted its children before, by their clocks. So it ends when the last of them was reported, by
// the clock of its process, and not when that arrived here.
func (t *transition) incidentSpan(c events.IncidentClosed, self string, at time.Time) {
	if observed := t.in.Time; at.Equal(t.now) && !observed.IsZero() && observed.Before(at) {
		at = observed
	}
	s := events.Span{
		Name: "incident", Self: self, End: at,
		Start: at.Add(-time.Duration(c.TotalMS * float64(time.Millisecond))),
		Attributes: map[string]string{
			attrGeneration: number(c.To), attrIncident: strconv.Itoa(c.Incident), attrCause: string(c.Cause.Kind),
		},
		Links: []string{tracing.JobTrace(t.View.Job)},
	}
	if c.Cause.Node != "" {
		s.Attributes[attrNode] = string(c.Cause.Node)
	} else if c.Cause.Place != nil {
		s.Attributes[attrNode] = string(c.Cause.Place.Node)
	}
	if c.Cause.Rank >= 0 {
		s.Attributes[attrRank] = strconv.Itoa(int(c.Cause.Rank))
	}
	if c.SilenceMS > 0 {
		s.Attributes[attrSilence] = strconv.FormatFloat(c.SilenceMS, 'f', -1, 64)
	}
	if c.To == 0 {
		s.Error = "the job ended"
	}
	t.span(s)
}

func number(g ident.Generation) string { return strconv.FormatUint(uint64(g), 10) }
