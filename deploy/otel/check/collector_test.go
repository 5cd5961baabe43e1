// Package check runs the sample of a collector beside a job.
package check

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/envprovider"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/batchprocessor"
	"go.opentelemetry.io/collector/processor/memorylimiterprocessor"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

// backend keeps what the collector sends it.
type backend struct {
	mu      sync.Mutex
	spans   map[string][]string // names by service
	metrics []string
	lines   map[string]string // span of the process by line
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	packed, err := gzip.NewReader(r.Body) // as the exporter sends it
	var body []byte
	if err == nil {
		body, err = io.ReadAll(packed)
	}
	if err == nil {
		err = b.keep(r.URL.Path, body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (b *backend) keep(path string, body []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch path {
	case "/v1/traces":
		r := ptraceotlp.NewExportRequest()
		if err := r.UnmarshalProto(body); err != nil {
			return err
		}
		for _, rs := range r.Traces().ResourceSpans().All() {
			service, _ := rs.Resource().Attributes().Get("service.name")
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					b.spans[service.AsString()] = append(b.spans[service.AsString()], s.Name()+" "+s.SpanID().String())
				}
			}
		}
	case "/v1/metrics":
		r := pmetricotlp.NewExportRequest()
		if err := r.UnmarshalProto(body); err != nil {
			return err
		}
		for _, rm := range r.Metrics().ResourceMetrics().All() {
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					b.metrics = append(b.metrics, m.Name())
				}
			}
		}
	case "/v1/logs":
		r := plogotlp.NewExportRequest()
		if err := r.UnmarshalProto(body); err != nil {
			return err
		}
		for _, rl := range r.Logs().ResourceLogs().All() {
			for _, sl := range rl.ScopeLogs().All() {
				for _, l := range sl.LogRecords().All() {
					b.lines[l.Body().AsString()] = l.SpanID().String()
				}
			}
		}
	default:
		return fmt.Errorf("no signal at %s", path)
	}
	return nil
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func factories() (f otelcol.Factories, err error) {
	f.Telemetry = otelconftelemetry.NewFactory()
	if f.Receivers, err = otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory()); err != nil {
		return f, err
	}
	if f.Processors, err = otelcol.MakeFactoryMap[processor.Factory](batchprocessor.NewFactory(), memorylimiterprocessor.NewFactory()); err != nil {
		return f, err
	}
	f.Exporters, err = otelcol.MakeFactoryMap[exporter.Factory](otlphttpexporter.NewFactory())
	return f, err
}

// TestCollector: all three signals of a run come through the sample, in each protocol.
func TestCollector(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) { through(t, protocol) })
	}
}

func through(t *testing.T, protocol string) {
	kept := &backend{spans: map[string][]string{}, lines: map[string]string{}}
	server := httptest.NewServer(kept)
	defer server.Close()
	grpc, http := free(t), free(t)
	for name, value := range map[string]string{"BACKEND": server.URL, "OTLP_GRPC": grpc, "OTLP_HTTP": http} {
		t.Setenv(name, value)
	}
	c, err := otelcol.NewCollector(otelcol.CollectorSettings{
		BuildInfo: component.NewDefaultBuildInfo(), Factories: factories, DisableGracefulShutdown: true,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs: []string{"file:../collector.yaml"}, ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory(), envprovider.NewFactory()},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(context.WithoutCancel(t.Context())) }()
	for c.GetState() != otelcol.StateRunning {
		select {
		case err := <-ended:
			t.Fatalf("the collector has ended: %v", err)
		case <-time.After(20 * time.Millisecond): // it gives no other sign
		}
	}
	endpoint := grpc
	if protocol != "grpc" {
		endpoint = http
	}
	counter, err := filepath.Abs("../../../bin/counter")
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), "../../../bin/regroup", "run", "--state-dir", t.TempDir(), "--workers", "2", "--recovery", "in-process", "--",
		"sh", "-c", `echo "span of $TRACEPARENT"; exec "$0" -steps 50 -quiet`, counter)
	run.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol, "OTEL_LOGS_EXPORTER=otlp", "REGROUP_AGENT_CHECKPOINT_FREE=0")
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v (make build)\n%s", err, out)
	}
	c.Shutdown() // it passes on what it has
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	for _, service := range []string{"agent", "registry", "rendezvous", "worker"} {
		if len(kept.spans[service]) == 0 {
			t.Errorf("no span of %s", service)
		}
	}
	if !slices.Contains(kept.metrics, "regroup.step") {
		t.Errorf("no metric of steps: %v", kept.metrics)
	}
	lines := 0
	for line, span := range kept.lines {
		if !strings.HasPrefix(line, "span of ") {
			continue
		}
		lines++
		if !strings.Contains(line, span) || !slices.Contains(kept.spans["worker"], "worker process "+span) {
			t.Errorf("%q is in span %s: %v", line, span, kept.spans["worker"])
		}
	}
	if lines != 2 {
		t.Errorf("%d lines: %v", lines, kept.lines)
	}
}
