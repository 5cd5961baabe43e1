package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/traces/tree"
	"github.com/regroup-io/regroup/internal/freeport"
)

// jaeger is a Jaeger of our own, which keeps traces in its memory.
type jaeger struct {
	otlp  string // URL to which spans are sent
	query string // URL of its API
}

// jaegerConfig has the addresses of OTLP, the API over HTTP and the API over gRPC.
const jaegerConfig = `service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces: {receivers: [otlp], exporters: [jaeger_storage_exporter]}
  telemetry:
    metrics: {level: none}
    logs: {level: warn}
extensions:
  jaeger_storage: {backends: {memory: {memory: {max_traces: 10000}}}}
  jaeger_query:
    storage: {traces: memory}
    http: {endpoint: %q}
    grpc: {endpoint: %q}
receivers:
  otlp: {protocols: {http: {endpoint: %q}}}
exporters:
  jaeger_storage_exporter: {trace_storage: memory}
`

// startJaeger starts the program at a path and returns when its API answers.
func startJaeger(ctx context.Context, p *cluster.Processes, path string) (*jaeger, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: make setup NEEDS=jaeger builds it", err)
	}
	at, err := freeport.Addresses(3)
	if err != nil {
		return nil, err
	}
	j := &jaeger{otlp: "http://" + at[0], query: "http://" + at[1]}
	config := filepath.Join(p.Dir, "jaeger.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, jaegerConfig, at[1], at[2], at[0]), 0o600); err != nil {
		return nil, err
	}
	if err := p.Start(cluster.Command{Name: "jaeger", Args: []string{path, "--config", "file:" + config}}); err != nil {
		return nil, err
	}
	return j, cluster.Until(ctx, func() (bool, error) {
		_, err := j.get(ctx, "/api/services")
		return err == nil, err
	})
}

// answer is what the API of Jaeger answers with.
type answer struct {
	Data []struct {
		TraceID   string       `json:"traceID"`
		Spans     []jaegerSpan `json:"spans"`
		Processes map[string]struct {
			ServiceName string `json:"serviceName"`
		} `json:"processes"`
	} `json:"data"`
}

type jaegerSpan struct {
	TraceID    string `json:"traceID"`
	SpanID     string `json:"spanID"`
	ProcessID  string `json:"processID"`
	Name       string `json:"operationName"`
	References []struct {
		Type    string `json:"refType"` // CHILD_OF, or FOLLOWS_FROM for a link
		TraceID string `json:"traceID"`
		SpanID  string `json:"spanID"`
	} `json:"references"`
	Start    int64 `json:"startTime"` // microseconds, like the duration
	Duration int64 `json:"duration"`
	Tags     []struct {
		Key   string `json:"key"`
		Value any    `json:"value"`
	} `json:"tags"`
}

// trace returns the spans of a trace; none if Jaeger does not know it.
func (j *jaeger) trace(ctx context.Context, id string) ([]tree.Span, error) {
	body, err := j.get(ctx, "/api/traces/"+id)
	if err != nil {
		return nil, err
	}
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, fmt.Errorf("jaeger: trace %s: %w", id, err)
	}
	var all []tree.Span
	for _, t := range a.Data {
		for _, s := range t.Spans {
			all = append(all, s.span(t.Processes[s.ProcessID].ServiceName))
		}
	}
	return all, nil
}

func (s jaegerSpan) span(service string) tree.Span {
	out := tree.Span{
		Ref: tree.Ref{Trace: s.TraceID, ID: s.SpanID}, Service: service, Name: s.Name,
		Start: time.UnixMicro(s.Start), End: time.UnixMicro(s.Start + s.Duration), Attributes: map[string]string{},
	}
	for _, r := range s.References {
		if r.Type == "CHILD_OF" && r.TraceID == s.TraceID && out.Parent == "" {
			out.Parent = r.SpanID
		} else {
			out.Links = append(out.Links, tree.Ref{Trace: r.TraceID, ID: r.SpanID})
		}
	}
	for _, t := range s.Tags {
		out.Attributes[t.Key] = fmt.Sprint(t.Value)
	}
	if out.Attributes["error"] == "true" {
		out.Error = out.Attributes["otel.status_description"]
	}
	return out
}

func (j *jaeger) get(ctx context.Context, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, j.query+path, nil)
	if err != nil {
		return nil, err
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode != http.StatusOK && a.StatusCode != http.StatusNotFound {
		err = fmt.Errorf("jaeger: %s: %d %s", path, a.StatusCode, body)
	}
	return body, err
}
