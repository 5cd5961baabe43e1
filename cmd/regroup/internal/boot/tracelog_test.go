package boot

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/services/controller"
)

// TestLogLinesCarryTheTrace: every line about an input with a trace has its ids, and no other.
func TestLogLinesCarryTheTrace(t *testing.T) {
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	traceparent := "00-" + trace + "-" + span + "-01"
	fact := events.Event{Body: events.JobStopped{}}
	for name, o := range map[string]controller.Observation{
		"fact":    {Trace: traceparent, Fact: &fact},
		"refused": {Trace: traceparent, Refusal: errors.New("no")},
		"trouble": {Trace: traceparent, Err: errors.New("no")},
		"without": {Err: errors.New("no")},
		"invalid": {Trace: "00-x-y-01", Err: errors.New("no")},
	} {
		var out bytes.Buffer
		log, err := Config{LogLevel: "debug", LogFormat: "json"}.Logger(&out)
		if err != nil {
			t.Fatal(err)
		}
		o.Service = "registry"
		(&Process{Logger: log}).Observe(o)
		var line map[string]any
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v in %q", name, err, out.String())
		}
		want := [2]any{trace, span}
		if !tracing.Valid(o.Trace) {
			want = [2]any{}
		}
		if got := [2]any{line["trace_id"], line["span_id"]}; got != want || line["service"] != "registry" {
			t.Errorf("%s: %s", name, strings.TrimSpace(out.String()))
		}
	}
}
