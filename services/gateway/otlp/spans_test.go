package otlp

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/limits"
)

// request returns a request of one resource with spans whose names have a length.
func request(t *testing.T, service string, spans, length int) []byte {
	t.Helper()
	traces := ptrace.NewTraces()
	rs := traces.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", service)
	scopes := []ptrace.ScopeSpans{rs.ScopeSpans().AppendEmpty(), rs.ScopeSpans().AppendEmpty()}
	for i := range spans {
		s := scopes[i%2].Spans().AppendEmpty()
		s.SetTraceID(pcommon.TraceID{1, 2, 3})
		s.SetSpanID(pcommon.SpanID{byte(i >> 8), byte(i), 1})
		s.SetName(strings.Repeat("x", length))
	}
	b, err := ptraceotlp.NewExportRequestFromTraces(traces).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ids counts the spans of messages by their id.
func ids(t *testing.T, b Batch) map[string]int {
	t.Helper()
	seen := map[string]int{}
	for _, m := range b.Messages {
		r := ptraceotlp.NewExportRequest()
		if err := r.UnmarshalProto(m); err != nil {
			t.Fatal(err)
		}
		for _, rs := range r.Traces().ResourceSpans().All() {
			if name, _ := rs.Resource().Attributes().Get("service.name"); name.AsString() != "mine" {
				t.Errorf("spans of %q", name.AsString())
			}
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					seen[s.SpanID().String()]++
				}
			}
		}
	}
	return seen
}

func TestOneMessage(t *testing.T) {
	b, err := Decode(Protobuf, request(t, "mine", 5, 10), nil)
	if err != nil || len(b.Messages) != 1 || b.Spans != 5 || b.Rejected != 0 || len(ids(t, b)) != 5 {
		t.Errorf("%d messages, %d spans, %d rejected, error %v", len(b.Messages), b.Spans, b.Rejected, err)
	}
}

// TestALongRequestIsSplit: each message fits a stream, and every span is in one of them.
func TestALongRequestIsSplit(t *testing.T) {
	b, err := Decode(Protobuf, request(t, "mine", 301, 20<<10), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Messages) < 6 || b.Spans != 301 || b.Rejected != 0 {
		t.Errorf("%d messages, %d spans, %d rejected", len(b.Messages), b.Spans, b.Rejected)
	}
	for _, m := range b.Messages {
		if len(m) >= limits.Message.Max {
			t.Errorf("a message of %d bytes", len(m))
		}
	}
	seen := ids(t, b)
	for id, n := range seen {
		if n != 1 {
			t.Errorf("span %s is there %d times", id, n)
		}
	}
	if len(seen) != 301 {
		t.Errorf("%d spans", len(seen))
	}
}

func TestRejectedSpans(t *testing.T) {
	b, err := Decode(Protobuf, request(t, "registry", 3, 1), []string{"registry"})
	if err != nil || b.Rejected != 3 || len(b.Messages) != 0 || !strings.Contains(b.Why, `"registry"`) {
		t.Errorf("a service of Regroup's: %+v, error %v", b, err)
	}
	answer, err := Answer(Protobuf, b)
	if err != nil {
		t.Fatal(err)
	}
	r := ptraceotlp.NewExportResponse()
	if err := r.UnmarshalProto(answer); err != nil || r.PartialSuccess().RejectedSpans() != 3 || r.PartialSuccess().ErrorMessage() != b.Why {
		t.Errorf("answer %d %q, error %v", r.PartialSuccess().RejectedSpans(), r.PartialSuccess().ErrorMessage(), err)
	}
	b, err = Decode(Protobuf, request(t, "mine", 1, limits.Message.Max), nil)
	if err != nil || b.Rejected != 1 || len(b.Messages) != 0 || !strings.Contains(b.Why, limits.Message.Name) {
		t.Errorf("a span that is too long: %d rejected, %q, error %v", b.Rejected, b.Why, err)
	}
}

// TestJSON has ids in hexadecimal digits, and numbers as text, as OTLP wants it.
func TestJSON(t *testing.T) {
	text := `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"mine"}}]},"scopeSpans":[{"spans":[
		{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"epoch","kind":1,"startTimeUnixNano":"1544712660000000000","endTimeUnixNano":"1544712661000000000"}]}]}]}`
	b, err := Decode(JSON, []byte(text), nil)
	if err != nil || b.Spans != 1 || ids(t, b)["eee19b7ec3c1b174"] != 1 {
		t.Errorf("%d spans, error %v", b.Spans, err)
	}
	if answer, err := Answer(JSON, b); err != nil || string(answer) != `{"partialSuccess":{}}` && string(answer) != `{}` {
		t.Errorf("answer %s, error %v", answer, err)
	}
}

func TestRefusals(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	zeros := make([]byte, 1<<20)
	for range 64 {
		_, _ = z.Write(zeros)
	}
	_ = z.Close()
	for name, c := range map[string]struct {
		media, encoding string
		body            []byte
		code            errcode.Code
		message         string
	}{
		"another form":        {"text/plain", "", nil, errcode.Invalid, Protobuf},
		"another packing":     {Protobuf, "zstd", nil, errcode.Invalid, "gzip"},
		"garbage":             {Protobuf, "", []byte("garbage"), errcode.Invalid, "ExportTraceServiceRequest"},
		"garbage in JSON":     {JSON, "", []byte(`{"resourceSpans":7}`), errcode.Invalid, "JSON"},
		"garbage as gzip":     {Protobuf, "gzip", []byte("garbage"), errcode.Invalid, "gzip"},
		"deep JSON":           {JSON, "", []byte(strings.Repeat("[", 1000)), errcode.Invalid, limits.Depth.Name},
		"64 MiB in 64 KiB":    {Protobuf, "gzip", packed.Bytes(), errcode.TooLarge, limits.Spans.Name},
		"as many bytes, bare": {Protobuf, "", make([]byte, limits.Spans.Max+1), errcode.TooLarge, limits.Spans.Name},
	} {
		body, err := Unpack(c.encoding, c.body)
		if err == nil {
			_, err = Decode(c.media, body, nil)
		}
		if err == nil || errcode.Of(err) != c.code || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v (%s), want %s with %q", name, err, errcode.Of(err), c.code, c.message)
		}
	}
}

// FuzzDecode: no request panics, and what is taken can be read.
func FuzzDecode(f *testing.F) {
	f.Add(true, []byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"a"}]}]}]}`))
	f.Add(false, []byte{10, 2, 18, 0})
	f.Fuzz(func(t *testing.T, asJSON bool, body []byte) {
		media := Protobuf
		if asJSON {
			media = JSON
		}
		b, err := Decode(media, body, []string{"registry"})
		if err != nil {
			return
		}
		n := 0
		for _, m := range b.Messages {
			r := ptraceotlp.NewExportRequest()
			if err := r.UnmarshalProto(m); err != nil {
				t.Fatal(err)
			}
			n += r.Traces().SpanCount()
		}
		if n != b.Spans {
			t.Fatal(fmt.Sprint(n, " spans in the messages, counted ", b.Spans))
		}
	})
}
