package boot

import (
	"context"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/tracing"
)

// A span that belongs to one of another trace says so in OTLP.
func TestLinksAreRecorded(t *testing.T) {
	p := memory.New().Ports()
	r, err := NewRecorder(p.Log, "test")
	if err != nil {
		t.Fatal(err)
	}
	client := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	now := time.Now()
	r.Record(events.Span{Service: "registry", Name: "job start", Self: tracing.JobTrace("demo-0001"), Start: now, End: now, Links: []string{client, "nonsense"}})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		t.Fatal(err)
	}
	m, err := p.Log.Last(ctx, events.StreamSpans, events.SpanSubject("registry"))
	if err != nil {
		t.Fatal(err)
	}
	var got collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(m.Data, &got); err != nil {
		t.Fatal(err)
	}
	links := got.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0].GetLinks()
	if len(links) != 1 || len(links[0].GetTraceId()) != 16 || links[0].GetTraceId()[0] != 0x0a {
		t.Errorf("links %v, want the one that can be read", links)
	}
}
