package boot

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
)

// Recorder turns events.Span into OpenTelemetry spans. They are stored in the spans stream,
// so that `regroup trace` needs no collector, and also exported by OTLP when
// OTEL_EXPORTER_OTLP_ENDPOINT is set.
type Recorder struct {
	log      broker.Log
	instance string
	otlp     export

	mu       sync.Mutex
	services map[string]*sdktrace.TracerProvider // one provider per service name, because the resource differs
	closed   bool
}

// NewRecorder returns a recorder that stores spans through log.
func NewRecorder(log broker.Log, instance string) (*Recorder, error) {
	how, err := exportOf("traces")
	return &Recorder{log: log, instance: instance, otlp: how, services: map[string]*sdktrace.TracerProvider{}}, err
}

// Record queues a finished span, which is exported in the background.
func (r *Recorder) Record(s events.Span) {
	p := r.provider(s.Service)
	if p == nil {
		return
	}
	carrier := propagation.MapCarrier{"traceparent": s.Parent}
	ctx := propagation.TraceContext{}.Extract(context.Background(), carrier)
	if s.Self != "" {
		ctx = context.WithValue(ctx, spanContextKey{}, spanContext(s.Self))
	}
	attrs := make([]attribute.KeyValue, 0, len(s.Attributes))
	for k, v := range s.Attributes {
		attrs = append(attrs, attribute.String(k, v))
	}
	var links []trace.Link
	for _, l := range s.Links {
		if c := spanContext(l); c.IsValid() {
			links = append(links, trace.Link{SpanContext: c})
		}
	}
	_, span := p.Tracer("regroup").Start(ctx, s.Name, trace.WithTimestamp(s.Start), trace.WithAttributes(attrs...), trace.WithLinks(links...))
	if s.Error != "" {
		span.SetStatus(codes.Error, s.Error)
	}
	span.End(trace.WithTimestamp(s.End))
}

func spanContext(traceparent string) trace.SpanContext {
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent}))
}

// exportEvery bounds the delay until a span is stored: short, because users ask for the trace right
// after a fault.
const exportEvery = 300 * time.Millisecond

func (r *Recorder) provider(service string) *sdktrace.TracerProvider {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, ok := r.services[service]; ok || r.closed {
		return p
	}
	res := resource.NewSchemaless(attribute.String("service.name", service), attribute.String("service.namespace", "regroup"),
		attribute.String("service.instance.id", r.instance))
	exporter := otlptrace.NewUnstarted(spanExporter{log: r.log, subject: events.SpanSubject(service)})
	o := []sdktrace.TracerProviderOption{
		sdktrace.WithResource(res), sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithIDGenerator(generator{}),
		sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(exportEvery)),
	}
	if r.otlp.on {
		client := otlptracehttp.NewClient()
		if r.otlp.grpc {
			client = otlptracegrpc.NewClient()
		}
		to := otlptrace.NewUnstarted(client)
		if err := to.Start(context.Background()); err != nil { // what it cannot send later, it tries again
			otel.Handle(err)
		}
		o = append(o, sdktrace.WithBatcher(to))
	}
	p := sdktrace.NewTracerProvider(o...)
	r.services[service] = p
	return p
}

// Close exports the remaining spans until ctx ends.
func (r *Recorder) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	services := r.services
	r.services = map[string]*sdktrace.TracerProvider{}
	r.mu.Unlock()
	var errs []error
	for _, p := range services {
		errs = append(errs, p.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

// spanExporter is an OTLP client that publishes to the spans stream: one ExportTraceServiceRequest
// per message.
type spanExporter struct {
	log     broker.Log
	subject string
}

func (spanExporter) Start(context.Context) error { return nil }
func (spanExporter) Stop(context.Context) error  { return nil }

func (e spanExporter) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	b, err := proto.Marshal(&collector.ExportTraceServiceRequest{ResourceSpans: spans})
	if err != nil {
		return err
	}
	_, err = e.log.Publish(ctx, broker.Message{Subject: e.subject, Data: b})
	return err
}

type spanContextKey struct{}

// generator returns random ids, except for a span whose ids are fixed (events.Span.Self): every
// process derives the same root span of an incident.
type generator struct{}

func (generator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if c, ok := ctx.Value(spanContextKey{}).(trace.SpanContext); ok && c.IsValid() {
		return c.TraceID(), c.SpanID()
	}
	var t trace.TraceID
	_, _ = rand.Read(t[:]) // never returns an error: it ends the program instead
	return t, randomSpan()
}

func (generator) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if c, ok := ctx.Value(spanContextKey{}).(trace.SpanContext); ok && c.IsValid() {
		return c.SpanID()
	}
	return randomSpan()
}

func randomSpan() trace.SpanID {
	var s trace.SpanID
	_, _ = rand.Read(s[:])
	return s
}
