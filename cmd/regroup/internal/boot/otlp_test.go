package boot

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	logscollector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	metricscollector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracecollector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/regroup-io/regroup/agent/logs"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/tracing"
)

// TestExports: the variables of OpenTelemetry say which signals are exported, and how.
func TestExports(t *testing.T) {
	for name, c := range map[string]struct {
		variables string
		want      export
		refused   string
	}{
		"nothing":              {variables: ""},
		"all":                  {variables: "OTEL_EXPORTER_OTLP_ENDPOINT=http://c", want: export{on: true}},
		"this one":             {variables: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c", want: export{on: true}},
		"another":              {variables: "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://c"},
		"not this one":         {variables: "OTEL_EXPORTER_OTLP_ENDPOINT=http://c OTEL_TRACES_EXPORTER=none"},
		"said":                 {variables: "OTEL_EXPORTER_OTLP_ENDPOINT=http://c OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", want: export{on: true}},
		"gRPC":                 {variables: "OTEL_EXPORTER_OTLP_ENDPOINT=http://c OTEL_EXPORTER_OTLP_PROTOCOL=grpc", want: export{on: true, grpc: true}},
		"gRPC for this":        {variables: "OTEL_EXPORTER_OTLP_ENDPOINT=http://c OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc", want: export{on: true, grpc: true}},
		"JSON":                 {variables: "OTEL_EXPORTER_OTLP_ENDPOINT=http://c OTEL_EXPORTER_OTLP_PROTOCOL=http/json", refused: `OTEL_EXPORTER_OTLP_PROTOCOL is "http/json" for traces`},
		"by others":            {variables: "OTEL_EXPORTER_OTLP_ENDPOINT=http://c OTEL_TRACES_EXPORTER=console"},
		"by others too":        {variables: "OTEL_EXPORTER_OTLP_ENDPOINT=http://c OTEL_TRACES_EXPORTER=console,otlp", want: export{on: true}},
		"JSON of what is none": {variables: "OTEL_EXPORTER_OTLP_PROTOCOL=http/json"},
	} {
		t.Run(name, func(t *testing.T) {
			for v := range strings.FieldsSeq(c.variables) {
				key, value, _ := strings.Cut(v, "=")
				t.Setenv(key, value)
			}
			got, err := exportOf("traces")
			if c.refused != "" {
				if errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), c.refused) {
					t.Fatalf("%v, want %s", err, c.refused)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("%+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

// sink is a collector of all signals.
type sink struct {
	logsService

	mu      sync.Mutex
	spans   []string
	metrics []string
}

// logsService keeps records of logs.
type logsService struct {
	logscollector.UnimplementedLogsServiceServer
	mu      sync.Mutex
	records []*logspb.LogRecord
}

func (s *logsService) Export(_ context.Context, r *logscollector.ExportLogsServiceRequest) (*logscollector.ExportLogsServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, r.GetResourceLogs()[0].GetScopeLogs()[0].GetLogRecords()...)
	return &logscollector.ExportLogsServiceResponse{}, nil
}

type traceService struct {
	tracecollector.UnimplementedTraceServiceServer
	s *sink
}

func (t traceService) Export(_ context.Context, r *tracecollector.ExportTraceServiceRequest) (*tracecollector.ExportTraceServiceResponse, error) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.s.spans = append(t.s.spans, r.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0].GetName())
	return &tracecollector.ExportTraceServiceResponse{}, nil
}

type metricsService struct {
	metricscollector.UnimplementedMetricsServiceServer
	s *sink
}

func (m metricsService) Export(_ context.Context, r *metricscollector.ExportMetricsServiceRequest) (*metricscollector.ExportMetricsServiceResponse, error) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	for _, x := range r.GetResourceMetrics()[0].GetScopeMetrics()[0].GetMetrics() {
		m.s.metrics = append(m.s.metrics, x.GetName())
	}
	return &metricscollector.ExportMetricsServiceResponse{}, nil
}

// TestEverySignalByGRPC: spans, metrics and the output of workers reach a collector that speaks
// gRPC alone.
func TestEverySignalByGRPC(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &sink{}
	server := grpc.NewServer()
	tracecollector.RegisterTraceServiceServer(server, traceService{s: s})
	metricscollector.RegisterMetricsServiceServer(server, metricsService{s: s})
	logscollector.RegisterLogsServiceServer(server, &s.logsService)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) }) // it ends when it is stopped
	t.Cleanup(func() { server.Stop(); served.Wait() })
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+listener.Addr().String())
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	t.Setenv("OTEL_LOGS_EXPORTER", "otlp")
	emitAll(t)
	if !slices.Equal(s.spans, []string{"job start"}) || !slices.Contains(s.metrics, "regroup.step") {
		t.Errorf("spans %v, metrics %v", s.spans, s.metrics)
	}
	checkRecords(t, s.records)
}

// TestOutputByHTTP: output is exported by HTTP too, but only where it is asked for.
func TestOutputByHTTP(t *testing.T) {
	kept := &logsService{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/logs" {
			return // the other signals
		}
		body, err := io.ReadAll(r.Body)
		request := new(logscollector.ExportLogsServiceRequest)
		if err != nil || proto.Unmarshal(body, request) != nil {
			t.Errorf("no OTLP on %s: %v", r.URL.Path, err)
			return
		}
		_, _ = kept.Export(r.Context(), request) // it returns no error
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	emitAll(t)
	if len(kept.records) != 0 {
		t.Fatalf("it was not asked for: %v", kept.records)
	}
	t.Setenv("OTEL_LOGS_EXPORTER", "otlp")
	emitAll(t)
	checkRecords(t, kept.records)
}

const processSpan = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// emitAll gives something to each signal, and closes them.
func emitAll(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	recorder, err := NewRecorder(memory.New().Ports().Log, "test")
	if err != nil {
		t.Fatal(err)
	}
	meter, err := NewMeter(ctx, "agent", "test")
	if err != nil {
		t.Fatal(err)
	}
	output, err := NewOutputLog(ctx, "worker", "test")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	recorder.Record(events.Span{Service: "registry", Name: "job start", Self: tracing.JobTrace("demo-0001"), Start: now, End: now})
	meter.Report(events.Progress{Job: "demo-0001", Rank: 1, Step: 7})
	line := logs.Line{Job: "demo-0001", Place: ident.Place{Node: "node-a", Slot: 1}, Rank: 3, Generation: 2, Stream: "stderr", Trace: processSpan}
	for _, text := range []string{"10 %", "20 %"} {
		line.Text, line.Open = text, true
		output.Line(line)
	}
	line.Text, line.Open = "100 %", false
	output.Line(line)
	output.Line(logs.Line{Job: "demo-0001", Rank: ident.NoRank, Stream: "stdout", Text: "before it has a rank"})
	for _, c := range []interface{ Close(context.Context) error }{recorder, meter, output} {
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

// checkRecords expects the two lines that emitAll ends.
func checkRecords(t *testing.T, records []*logspb.LogRecord) {
	t.Helper()
	if len(records) != 2 {
		t.Fatalf("%d records: %v", len(records), records)
	}
	var got []string
	for _, a := range records[0].GetAttributes() {
		got = append(got, strings.TrimSpace(a.GetKey()+"="+a.GetValue().GetStringValue()))
	}
	slices.Sort(got)
	want := []string{"log.iostream=stderr", "regroup.generation=", "regroup.job.id=demo-0001", "regroup.node=node-a", "regroup.rank=", "regroup.slot="}
	if text := records[0].GetBody().GetStringValue(); text != "100 %" || !slices.Equal(got, want) {
		t.Errorf("%q with %v, want %v", text, got, want)
	}
	if trace := records[0].GetTraceId(); len(trace) != 16 || trace[0] != 0x0a || len(records[0].GetSpanId()) != 8 {
		t.Errorf("trace %x, span %x", trace, records[0].GetSpanId())
	}
	if records[1].GetBody().GetStringValue() != "before it has a rank" || len(records[1].GetTraceId()) != 0 {
		t.Errorf("%v", records[1])
	}
}
