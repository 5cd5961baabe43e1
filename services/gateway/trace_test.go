package gateway_test

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/services/cluster/waterfall"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/gateway"
)

const clients = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// recorder collects spans of the gateway and the services.
type recorder struct {
	mu    sync.Mutex
	spans []events.Span
}

func (r *recorder) add(s ...events.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, s...)
}

// find returns the span of a service with a name, and how many there are.
func (r *recorder) find(service, name string) (found events.Span, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.Service == service && s.Name == name {
			found = s
			n++
		}
	}
	return found, n
}

// TestACommandIsPartOfTheTraceOfItsClient: of the request's traceparent, or of one of its own. What
// the registry makes of it is below the gateway's span, and each leads to the start of the job.
func TestACommandIsPartOfTheTraceOfItsClient(t *testing.T) {
	for name, parent := range map[string]string{"of the client": clients, "of its own": "", "not understood": "00-x-01"} {
		t.Run(name, func(t *testing.T) {
			var all recorder
			w := bare(t, func(o *gateway.Options) { o.Spans = func(s events.Span) { all.add(s) } })
			w.observe = func(o controller.Observation) { all.add(o.Spans...) }
			w.services()
			s := w.submit(job, "Traceparent: "+parent)
			root, n := all.find("gateway", "command job.submit")
			if n != 1 || !slices.Equal(root.Links, []string{tracing.JobTrace(s.Job)}) || root.Attributes["regroup.job.id"] != string(s.Job) || root.Error != "" || root.End.Before(root.Start) {
				t.Fatalf("%d spans of the gateway: %+v", n, root)
			}
			if want := parent; name != "of the client" && root.Parent != "" || name == "of the client" && root.Parent != want {
				t.Errorf("its parent is %q", root.Parent)
			}
			if tracing.TraceID(root.Self) == tracing.TraceID(tracing.JobTrace(s.Job)) || !tracing.Valid(root.Self) {
				t.Errorf("it is %q", root.Self)
			}
			// A service tells of its spans after it has published the fact that answers.
			w.eventually("the registry has a span below it", func() bool {
				all.mu.Lock()
				defer all.mu.Unlock()
				return slices.ContainsFunc(all.spans, func(a events.Span) bool {
					return a.Service == "registry" && a.Name == "accept job.submit" && a.Parent == root.Self
				})
			})
		})
	}
}

// TestARefusalIsInTheSpan: what is not carried out is an error of the span.
func TestARefusalIsInTheSpan(t *testing.T) {
	var all recorder
	w := bare(t, func(o *gateway.Options) {
		o.Spans, o.AnswerWithin = func(s events.Span) { all.add(s) }, 50*time.Millisecond // nobody answers
	})
	if a := w.do("POST", "/api/v1/jobs", job, "Traceparent: "+clients); a.status != http.StatusServiceUnavailable {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if s, n := all.find("gateway", "command job.submit"); n != 1 || s.Error == "" || s.Parent != clients {
		t.Errorf("%d spans: %+v", n, s)
	}
}

// TestAnEventKeepsItsTrace: that of the event comes before that of the request, and no span is made
// for it: its creator has one.
func TestAnEventKeepsItsTrace(t *testing.T) {
	const own = "00-11111111111111111111111111111111-2222222222222222-01"
	var all recorder
	w := bare(t, func(o *gateway.Options) { o.Spans = func(s events.Span) { all.add(s) } })
	for id, want := range map[string]string{"1": own, "2": clients} {
		event := `{"specversion": "1.0", "id": "` + id + `", "source": "/client/test", "type": "dev.regroup.job.stop.v1", "subject": "x-0000", "data": {"job": "x-0000"}`
		if want == own {
			event += `, "traceparent": "` + own + `"`
		}
		if a := w.do("POST", "/api/v1/events", event+"}", "Content-Type: application/cloudevents+json", "Traceparent: "+clients); a.status != http.StatusAccepted {
			t.Fatalf("%d %s", a.status, a.body)
		}
		m, err := w.ports.Log.Last(t.Context(), events.StreamCommands, events.CommandSubject("dev.regroup.job.stop.v1"))
		if err != nil {
			t.Fatal(err)
		}
		if e, err := cloudevent.Decode(m.Header, m.Data); err != nil || e.Trace != want {
			t.Errorf("the event has the trace %q, want %q: %v", e.Trace, want, err)
		}
	}
	if len(all.spans) > 0 {
		t.Errorf("spans %+v", all.spans)
	}
}

// exported sends a span with the exporter of OpenTelemetry's SDK for Go.
func exported(t *testing.T, w *world, packing otlptracehttp.Compression, service, parent, name string) error {
	t.Helper()
	exporter, err := otlptrace.New(t.Context(), otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(w.url+"/v1/traces"),
		otlptracehttp.WithHeaders(map[string]string{"Authorization": "Bearer " + token}), otlptracehttp.WithCompression(packing)))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", service))))
	ctx := propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{"traceparent": parent})
	_, span := provider.Tracer("test").Start(ctx, name)
	span.End()
	err = exporter.ExportSpans(t.Context(), []sdktrace.ReadOnlySpan{span.(sdktrace.ReadOnlySpan)})
	if e := exporter.Shutdown(context.WithoutCancel(t.Context())); e != nil {
		t.Error(e)
	}
	return err
}

// TestSpansOfOthers: what an exporter of OpenTelemetry sends is stored beside the spans of the
// services, and is on the page of a job whose trace it is part of.
func TestSpansOfOthers(t *testing.T) {
	w := start(t)
	s := w.submit(job)
	trace := tracing.JobTrace(s.Job)
	if err := exported(t, w, otlptracehttp.GzipCompression, "mine", trace, "fetch data"); err != nil {
		t.Fatal(err)
	}
	if err := exported(t, w, otlptracehttp.NoCompression, "mine", trace, "fetch more"); err != nil {
		t.Fatal(err)
	}
	if err := exported(t, w, otlptracehttp.NoCompression, "mine", "", "of another trace"); err != nil {
		t.Fatal(err)
	}
	if err := exported(t, w, otlptracehttp.NoCompression, "registry", trace, "forged"); err == nil {
		t.Error("a span in the name of the registry was stored, or its sender not told")
	}
	a := w.get("/api/v1/jobs/" + string(s.Job) + "/traces")
	var got waterfall.Page
	a.into(t, &got)
	var names []string
	for _, r := range got.Traces[0].Rows {
		if r.Service == "mine" {
			names = append(names, r.Name)
		}
	}
	if !slices.Equal(names, []string{"fetch data", "fetch more"}) {
		t.Errorf("the page has the spans %v: %s", names, a.body)
	}
	if a := w.do("POST", "/v1/traces", "{}", "Content-Type: application/json", "Authorization: "); a.status != http.StatusUnauthorized {
		t.Errorf("without a token: %d", a.status)
	}
	if a := w.do("POST", "/v1/traces", "garbage", "Content-Type: application/x-protobuf"); a.status != http.StatusBadRequest {
		t.Errorf("garbage: %d %s", a.status, a.body)
	}
}
