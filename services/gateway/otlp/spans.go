// Package otlp takes spans from OTLP exporters over HTTP, in protobuf or JSON
// (opentelemetry.io/docs/specs/otlp).
package otlp

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
)

// Media types of a request; the answer has that of its request.
const (
	Protobuf = "application/x-protobuf"
	JSON     = "application/json"
)

// Batch is a request, taken apart.
type Batch struct {
	Messages [][]byte // ExportTraceServiceRequests in protobuf, each at most limits.Message long
	Spans    int      // in them
	Rejected int      // spans that are in none of them
	Why      string   // of the last one that was rejected
}

// Unpack undoes a Content-Encoding, "" or gzip.
func Unpack(encoding string, body []byte) ([]byte, error) {
	switch encoding {
	case "", "identity":
		return body, nil
	case "gzip":
	default:
		return nil, errcode.Errorf(errcode.Invalid, "Content-Encoding %q is not understood: send gzip, or none", encoding)
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, errcode.Errorf(errcode.Invalid, "the body is not gzip: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(z, int64(limits.Spans.Max)+1))
	if err != nil {
		return nil, errcode.Errorf(errcode.Invalid, "the body is not gzip: %w", err)
	}
	return plain, nil
}

// Decode reads an ExportTraceServiceRequest. own are names of services that only their own spans
// may have.
func Decode(media string, body []byte, own []string) (Batch, error) {
	if len(body) > limits.Spans.Max {
		return Batch{}, errcode.Errorf(errcode.TooLarge, "the spans are over %d bytes long (%s): export fewer at once", limits.Spans.Max, limits.Spans)
	}
	r := ptraceotlp.NewExportRequest()
	switch media {
	case Protobuf:
		if err := r.UnmarshalProto(body); err != nil {
			return Batch{}, errcode.Errorf(errcode.Invalid, "the body is no ExportTraceServiceRequest of OTLP: %w", err)
		}
	case JSON:
		if f := spec.CheckLimit("", limits.Nesting(body), limits.Depth); f != nil {
			return Batch{}, errcode.Refuse([]spec.FieldError{*f})
		}
		if err := r.UnmarshalJSON(body); err != nil {
			return Batch{}, errcode.Errorf(errcode.Invalid, "the body is no ExportTraceServiceRequest of OTLP in JSON: %w", err)
		}
	default:
		return Batch{}, errcode.Errorf(errcode.Invalid, "Content-Type %q is not understood: send %s or %s", media, Protobuf, JSON)
	}
	var b Batch
	for _, rs := range r.Traces().ResourceSpans().All() {
		if name, ok := rs.Resource().Attributes().Get("service.name"); ok && slices.Contains(own, name.AsString()) {
			b.reject(count(rs), fmt.Sprintf("service.name is %q, which is one of Regroup's own: set another (OTEL_SERVICE_NAME)", name.AsString()))
			continue
		}
		if err := b.add(rs); err != nil {
			return Batch{}, err
		}
	}
	return b, nil
}

func (b *Batch) reject(spans int, why string) {
	b.Rejected, b.Why = b.Rejected+spans, why
}

// add makes one message of the spans of a resource, or of each half if that is too long.
func (b *Batch) add(rs ptrace.ResourceSpans) error {
	n := count(rs)
	if n == 0 {
		return nil
	}
	t := ptrace.NewTraces()
	rs.CopyTo(t.ResourceSpans().AppendEmpty())
	text, err := ptraceotlp.NewExportRequestFromTraces(t).MarshalProto()
	switch {
	case err != nil:
		return errcode.Errorf(errcode.Internal, "encode spans: %w", err)
	case len(text) <= limits.Message.Max-headroom:
		b.Messages, b.Spans = append(b.Messages, text), b.Spans+n
		return nil
	case n == 1:
		b.reject(1, fmt.Sprintf("a span is %d bytes long (%s)", len(text), limits.Message))
		return nil
	}
	first, second := ptrace.NewResourceSpans(), ptrace.NewResourceSpans()
	rs.CopyTo(first)
	rs.CopyTo(second)
	keep(first, func(i int) bool { return i < n/2 })
	keep(second, func(i int) bool { return i >= n/2 })
	return errors.Join(b.add(first), b.add(second))
}

// headroom is what the broker adds to a message.
const headroom = 4 << 10

func count(rs ptrace.ResourceSpans) (n int) {
	for _, s := range rs.ScopeSpans().All() {
		n += s.Spans().Len()
	}
	return n
}

// keep removes the spans whose index in the resource is not wanted.
func keep(rs ptrace.ResourceSpans, want func(int) bool) {
	i := -1
	for _, s := range rs.ScopeSpans().All() {
		s.Spans().RemoveIf(func(ptrace.Span) bool { i++; return !want(i) })
	}
}

// Answer is the ExportTraceServiceResponse to a batch.
func Answer(media string, b Batch) ([]byte, error) {
	r := ptraceotlp.NewExportResponse()
	if b.Rejected > 0 {
		r.PartialSuccess().SetRejectedSpans(int64(b.Rejected))
		r.PartialSuccess().SetErrorMessage(b.Why)
	}
	if media == JSON {
		return r.MarshalJSON()
	}
	return r.MarshalProto()
}
