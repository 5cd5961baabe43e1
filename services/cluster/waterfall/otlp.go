package waterfall

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/regroup-io/regroup/events/errcode"
)

// OTLP returns the spans of one stored message that are of these traces, as a line of JSON in the
// form of OTLP, which collectors and Jaeger read; empty = it has none.
func OTLP(message []byte, traces []Trace) ([]byte, error) {
	all, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(message)
	if err != nil {
		return nil, errcode.Errorf(errcode.Invalid, "decode spans: %w", err)
	}
	all.ResourceSpans().RemoveIf(func(r ptrace.ResourceSpans) bool {
		r.ScopeSpans().RemoveIf(func(s ptrace.ScopeSpans) bool {
			s.Spans().RemoveIf(func(s ptrace.Span) bool {
				return !slices.ContainsFunc(traces, func(t Trace) bool { return t.Trace == s.TraceID().String() })
			})
			return s.Spans().Len() == 0
		})
		return r.ScopeSpans().Len() == 0
	})
	if all.ResourceSpans().Len() == 0 {
		return nil, nil
	}
	return (&ptrace.JSONMarshaler{}).MarshalTraces(all)
}
