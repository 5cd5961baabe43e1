// Package tracing derives the traceparents (W3C Trace Context) of the root spans of jobs,
// incidents, workers and nodes, so that every process has the same ones without asking.
package tracing

import (
	"context"
	"strings"

	"github.com/regroup-io/regroup/events/ident"
)

// IncidentTrace returns the traceparent of the root span of the incident that ended generation g of
// a job. Every process derives the same one, so that all their spans are in one trace.
func IncidentTrace(job ident.JobID, g ident.Generation) string {
	return rootTrace("incident", string(job), g.String())
}

// rootTrace returns the traceparent of a root span, derived from the words.
func rootTrace(kind string, words ...string) string {
	trace, span := ident.Token(append([]string{kind}, words...)...), ident.Token(append([]string{kind + "-root"}, words...)...)
	return "00-" + trace + "-" + span[:16] + "-01"
}

// JobTrace returns the traceparent of the root span of a job's start, up to the first good step.
func JobTrace(job ident.JobID) string { return rootTrace("job", string(job)) }

// CommandTrace returns the traceparent of a command whose client has no trace of its own.
func CommandTrace(nonce string) string { return rootTrace("command", nonce) }

// WorkerTrace returns the traceparent of the run of a worker's process that no incident has
// started, and no start of a job: it prefetches the state of a job that trains.
func WorkerTrace(worker ident.Incarnation) string { return rootTrace("worker", string(worker)) }

// NodeTrace returns the traceparent of discovery's decision that one incarnation of a node's agent
// is lost. Several jobs, or none, may be affected.
func NodeTrace(node ident.NodeID, agent ident.Incarnation) string {
	return rootTrace("node", string(node), string(agent))
}

// Own returns a traceparent, or "" if it is that of a job's start, which clients may derive.
func Own(traceparent string, job ident.JobID) string {
	if !Valid(traceparent) || TraceID(traceparent) == TraceID(JobTrace(job)) {
		return ""
	}
	return traceparent
}

// Child returns the traceparent of a span inside the trace of parent, derived from the words.
func Child(parent string, words ...string) string {
	id := TraceID(parent)
	if id == "" {
		return ""
	}
	return "00-" + id + "-" + ident.Token(append([]string{parent}, words...)...)[:16] + parent[strings.LastIndexByte(parent, '-'):]
}

// TraceID returns the trace id inside a traceparent, or "".
func TraceID(traceparent string) string {
	p := strings.Split(traceparent, "-")
	if len(p) != 4 {
		return ""
	}
	return p[1]
}

// SpanID returns the span id inside a traceparent, or "".
func SpanID(traceparent string) string {
	p := strings.Split(traceparent, "-")
	if len(p) != 4 {
		return ""
	}
	return p[2]
}

// Valid reports whether s is a traceparent of W3C Trace Context level 1.
func Valid(s string) bool {
	if len(s) != 55 || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && c != '-' {
			return false
		}
	}
	return strings.Trim(s[3:35], "0") != "" && strings.Trim(s[36:52], "0") != "" && strings.Count(s, "-") == 3
}

// traceKey is the context key of a W3C traceparent, which adapters send in HeaderTrace.
type traceKey struct{}

// NewContext returns a context in which adapters send this traceparent if a message has none.
func NewContext(ctx context.Context, traceparent string) context.Context {
	return context.WithValue(ctx, traceKey{}, traceparent)
}

// FromContext returns the traceparent of NewContext, or "".
func FromContext(ctx context.Context) string {
	s, _ := ctx.Value(traceKey{}).(string)
	return s
}
