package local

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/regroup-io/regroup/e2e/traces/tree"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tracing"
)

// TestOTLP checks that with OTEL_EXPORTER_OTLP_ENDPOINT the spans of every service are exported by
// OTLP too. Each trace is a tree; the worker that was killed has a span that is closed with its
// exit, and each worker was told the id of its own.
func TestOTLP(t *testing.T) {
	sink := collect(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.url)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=of-the-agent")
	dir := t.TempDir()
	out := filepath.Join(dir, "told")
	script := `echo "$TRACEPARENT $OTEL_EXPORTER_OTLP_ENDPOINT $OTEL_EXPORTER_OTLP_HEADERS" >> ` + out + `
[ "$TORCHELASTIC_RESTART_COUNT" != 0 ] || { [ $RANK = 0 ] || kill -9 $$; sleep 600; }`
	_, errs, code := runLocal(t, dir, patience, "run", "--workers", "2", "--max-restarts", "3", "--", "sh", "-c", script)
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, errs)
	}
	published, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	traces := sink.traces()
	var job ident.JobID
	for id, spans := range traces {
		if f := tree.Faults(id, spans); len(f) > 0 {
			t.Errorf("trace %s: %s", id, strings.Join(f, "\n  "))
		}
		for _, s := range spans {
			job = ident.JobID(s.Attributes["regroup.job.id"])
		}
	}
	start, incident := traces[tracing.TraceID(tracing.JobTrace(job))], traces[tracing.TraceID(tracing.IncidentTrace(job, 1))]
	for _, service := range []string{"agent", "registry", "rendezvous", "worker"} {
		for name, spans := range map[string][]tree.Span{"the start": start, "the incident": incident} {
			if !slices.ContainsFunc(spans, func(s tree.Span) bool { return s.Service == service }) {
				t.Errorf("the trace of %s has no span of %s: %v", name, service, spans)
			}
		}
	}
	runs := append(tree.Named(start, "worker", "worker process"), tree.Named(incident, "worker", "worker process")...)
	killed := 0
	for _, r := range runs {
		if want := "00-" + r.Trace + "-" + r.ID + "-01 " + sink.url + " \n"; !strings.Contains(string(published), want) {
			t.Errorf("no worker was told %q, but\n%s", want, published)
		}
		if r.Error == "killed by signal 9 (SIGKILL)" && r.Attributes["process.exit.code"] == "-1" && r.Attributes["regroup.rank"] == "1" {
			killed++
		}
	}
	if len(runs) != 4 || killed != 1 {
		t.Errorf("%d runs of workers, not 4, of which %d were killed, not 1: %+v", len(runs), killed, runs)
	}
}

// otlpSink is a collector in this process.
type otlpSink struct {
	url string
	mu  sync.Mutex
	all map[string][]tree.Span
}

func collect(t *testing.T) *otlpSink {
	s := &otlpSink{all: map[string][]tree.Span{}}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(b, &req) != nil || r.Header.Get("X-Key") != "of-the-agent" {
			t.Errorf("no OTLP request on %s with the header of the agent: %v", r.URL.Path, err)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, rs := range req.ResourceSpans {
			service := ""
			for _, a := range rs.Resource.Attributes {
				if a.Key == "service.name" {
					service = a.Value.GetStringValue()
				}
			}
			for _, ss := range rs.ScopeSpans {
				for _, one := range ss.Spans {
					x := span(service, one)
					s.all[x.Trace] = append(s.all[x.Trace], x)
				}
			}
		}
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *otlpSink) traces() map[string][]tree.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

func span(service string, s *tracepb.Span) tree.Span {
	x := tree.Span{
		Ref:    tree.Ref{Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId)},
		Parent: hex.EncodeToString(s.ParentSpanId), Service: service, Name: s.Name,
		Start: time.Unix(0, int64(s.StartTimeUnixNano)), End: time.Unix(0, int64(s.EndTimeUnixNano)), Attributes: map[string]string{},
	}
	for _, a := range s.Attributes {
		x.Attributes[a.Key] = a.Value.GetStringValue()
	}
	if s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		x.Error = s.Status.Message
	}
	return x
}
