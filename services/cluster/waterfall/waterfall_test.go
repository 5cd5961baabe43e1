package waterfall

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/tracing"
)

var t0 = time.Date(2026, 11, 21, 10, 30, 0, 0, time.UTC)

const trace = "0af7651916cd43dd8448eb211c80319c"

func at(ms float64) time.Time { return t0.Add(time.Duration(ms * float64(time.Millisecond))) }

// TestTitles: an incident's title tells what no span can: for how long nobody had observed a step.
func TestTitles(t *testing.T) {
	lost := events.Cause{Kind: events.CauseNodeLost, Node: "node-b", Rank: -1}
	v := events.JobView{Job: "demo-0001", Incidents: []events.IncidentClosed{
		{Incident: 1, From: 1, To: 2, Cause: lost}, {Incident: 2, From: 2, To: 3, Cause: lost, SilenceMS: 9800}, {Incident: 3, From: 3, To: 4, Cause: lost, SilenceUnknown: true},
	}, OpenIncident: &events.IncidentOpened{Incident: 4, From: 4, Cause: lost}}
	all, err := Traces(v, -1)
	if err != nil {
		t.Fatal(err)
	}
	page := NewPage(v, nil, false)
	for i, want := range []string{
		"start of demo-0001", "#1 node-lost node-b", "#2 node-lost node-b, no step was observed for 9.8s before",
		"#3 node-lost node-b, for how long nobody had observed it before is unknown", "#4 node-lost node-b",
	} {
		if got := all[i].Title; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := page.Traces[len(all)-1-i].Title; got != want {
			t.Errorf("in the dashboard %q, want %q", got, want)
		}
	}
}

// TestRingOfParents checks that a cycle of parents neither hangs nor hides spans.
func TestRingOfParents(t *testing.T) {
	a := Span{ID: "01", Parent: "02", Start: at(0), End: at(1)}
	b := Span{ID: "02", Parent: "01", Start: at(0), End: at(2)}
	c := Span{ID: "03", Parent: "03", Start: at(0), End: at(3)}
	if n := len(Rows([]Span{a, b, c})); n != 3 {
		t.Errorf("%d spans drawn, want 3", n)
	}
}

func TestDecode(t *testing.T) {
	id, err := hex.DecodeString(trace)
	if err != nil {
		t.Fatal(err)
	}
	kv := func(k, v string) *common.KeyValue {
		return &common.KeyValue{Key: k, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: v}}}
	}
	raw, err := proto.Marshal(&collector.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{kv("service.name", "agent")}},
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{
			TraceId: id, SpanId: []byte{0, 0, 0, 0, 0, 0, 0, 2}, ParentSpanId: []byte{0, 0, 0, 0, 0, 0, 0, 1}, Name: "process",
			StartTimeUnixNano: uint64(t0.UnixNano()), EndTimeUnixNano: uint64(at(3).UnixNano()),
			Attributes: []*common.KeyValue{kv("regroup.job.id", "a-0001"), {Key: "n", Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: 7}}}},
			Status:     &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR},
		}}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(raw)
	if err != nil || len(got) != 1 {
		t.Fatalf("%v %v", got, err)
	}
	s := got[0]
	if s.Trace != trace || s.ID != "0000000000000002" || s.Parent != "0000000000000001" || s.Service != "agent" || s.Error != "error" ||
		!s.Start.Equal(t0) || s.End.Sub(s.Start) != 3*time.Millisecond || s.Attributes["regroup.job.id"] != "a-0001" || s.Attributes["n"] != "7" {
		t.Errorf("got %+v", s)
	}
	if _, err := Decode([]byte("no protobuf")); errcode.Of(err) != errcode.Invalid {
		t.Errorf("got %v, want Invalid", err)
	}
	line, err := OTLP(raw, []Trace{{Trace: "another"}, {Trace: trace}})
	if text := string(line); err != nil || !strings.Contains(text, `"traceId":"`+trace+`"`) || !strings.Contains(text, `"spanId":"0000000000000002"`) || strings.Contains(text, "\n") {
		t.Errorf("OTLP in JSON: %s %v", line, err)
	}
	if line, err := OTLP(raw, []Trace{{Trace: "another"}}); err != nil || len(line) > 0 {
		t.Errorf("spans of no trace that is asked for: %s %v", line, err)
	}
	if _, err := OTLP([]byte("no protobuf"), nil); errcode.Of(err) != errcode.Invalid {
		t.Errorf("got %v, want Invalid", err)
	}
}

// TestPage has the newest incident first, the spans in the order of a waterfall, and what it leaves
// out.
func TestPage(t *testing.T) {
	v := events.JobView{Job: "demo-0001", Incidents: []events.IncidentClosed{{Incident: 1, From: 1}}}
	message := func(parent string, n int) []byte {
		r := &collector.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{}}}}}
		id, err := hex.DecodeString(tracing.TraceID(parent))
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			s := &tracepb.Span{TraceId: id, SpanId: []byte{byte(i >> 8), byte(i), 0, 0, 0, 0, 0, 1}, Name: "x", StartTimeUnixNano: uint64(i), EndTimeUnixNano: uint64(i + 1)}
			if i > 0 {
				s.ParentSpanId = []byte{0, 0, 0, 0, 0, 0, 0, 1}
			}
			r.ResourceSpans[0].ScopeSpans[0].Spans = append(r.ResourceSpans[0].ScopeSpans[0].Spans, s)
		}
		b, err := proto.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	p := NewPage(v, [][]byte{message(tracing.IncidentTrace("demo-0001", 1), 2000), []byte("garbage"), message(tracing.JobTrace("demo-0001"), 1500)}, true)
	if len(p.Traces) != 2 || p.Traces[0].Incident != 1 || p.Traces[1].Incident != 0 || !p.Cut {
		t.Fatalf("%d traces, cut %v", len(p.Traces), p.Cut)
	}
	if n, left := len(p.Traces[0].Rows), p.Traces[0].Left; n != 2000 || left != 0 {
		t.Errorf("the incident has %d rows, %d are left out", n, left)
	}
	if n, left := len(p.Traces[1].Rows), p.Traces[1].Left; n != 1000 || left != 500 {
		t.Errorf("the start has %d rows, %d are left out", n, left)
	}
	if a, b := p.Traces[0].Rows[0], p.Traces[0].Rows[1]; a.Depth != 0 || b.Depth != 1 || a.Parent != "" {
		t.Errorf("rows %+v, %+v", a, b)
	}
}

// TestWhere: of spans with one name each says whose it is, as far as that is known.
func TestWhere(t *testing.T) {
	for want, a := range map[string]map[string]string{
		"r2 on node-b/1": {"regroup.rank": "2", "regroup.place": "node-b/1", "regroup.node": "node-b"},
		"node-b/1":       {"regroup.rank": "-1", "regroup.place": "node-b/1", "regroup.node": "node-b"},
		"r0 on node-b":   {"regroup.rank": "0", "regroup.node": "node-b"},
		"node-b":         {"regroup.node": "node-b"},
		"r7":             {"regroup.rank": "7"},
		"":               {"regroup.rank": "first"},
	} {
		if got := Rows([]Span{{ID: "01", Attributes: a}})[0].Where; got != want {
			t.Errorf("%v is of %q, want %q", a, got, want)
		}
	}
}
