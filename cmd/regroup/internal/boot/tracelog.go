package boot

import (
	"context"
	"log/slog"

	"github.com/regroup-io/regroup/events/tracing"
)

// traceHandler adds the ids of the trace of the context (tracing.NewContext) to each log line: a
// line leads to the waterfall of its incident, and back.
type traceHandler struct{ slog.Handler }

// Attributes of log lines, as OpenTelemetry names them.
const (
	attrTraceID = "trace_id"
	attrSpanID  = "span_id"
)

func (h traceHandler) Handle(ctx context.Context, r slog.Record) error {
	if t := tracing.FromContext(ctx); tracing.Valid(t) {
		r.AddAttrs(slog.String(attrTraceID, tracing.TraceID(t)), slog.String(attrSpanID, tracing.SpanID(t)))
	}
	return h.Handler.Handle(ctx, r)
}

func (h traceHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return traceHandler{h.Handler.WithAttrs(a)}
}

func (h traceHandler) WithGroup(name string) slog.Handler {
	return traceHandler{h.Handler.WithGroup(name)}
}
