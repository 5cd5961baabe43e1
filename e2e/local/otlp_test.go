package local

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// TestOTLP checks that with OTEL_EXPORTER_OTLP_ENDPOINT the spans of every service are exported by
// OTLP too, those of one incident in one trace.
func TestOTLP(t *testing.T) {
	var mu sync.Mutex
	services := map[string]map[string]bool{} // trace id -> services
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(b, &req) != nil {
			t.Errorf("no OTLP request on %s: %v", r.URL.Path, err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range req.ResourceSpans {
			name := ""
			for _, a := range rs.Resource.Attributes {
				if a.Key == "service.name" {
					name = a.Value.GetStringValue()
				}
			}
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					id := string(s.TraceId)
					if services[id] == nil {
						services[id] = map[string]bool{}
					}
					services[id][name] = true
				}
			}
		}
	}))
	defer sink.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.URL)
	_, errs, code := runLocal(t, t.TempDir(), time.Minute, "run", "--workers", "2", "--max-restarts", "3", "--",
		"sh", "-c", `[ "$TORCHELASTIC_RESTART_COUNT" != 0 ] || { [ $RANK = 0 ] || kill -9 $$; sleep 600; }`)
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, errs)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, in := range services {
		if in["agent"] && in["registry"] && in["rendezvous"] {
			return
		}
	}
	t.Errorf("no trace has spans of agent, registry and rendezvous: %v", services)
}
