// Package waterfall reads the traces of a job, and puts each in the order of a waterfall. It reads
// spans as OTLP carries them (opentelemetry.io/docs/specs/otlp), so that a trace can be looked at
// without a collector.
package waterfall

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/regroup-io/regroup/events/errcode"
)

// Span is one span of a trace.
type Span struct {
	Trace      string            `json:"trace_id"`
	ID         string            `json:"span_id"`
	Parent     string            `json:"parent_span_id,omitempty"`
	Service    string            `json:"service"`
	Name       string            `json:"name"`
	Start      time.Time         `json:"start"`
	End        time.Time         `json:"end"`
	Error      string            `json:"error,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// Decode reads the spans of one stored message: an OTLP ExportTraceServiceRequest in protobuf.
func Decode(otlp []byte) ([]Span, error) {
	var r collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(otlp, &r); err != nil {
		return nil, errcode.Errorf(errcode.Invalid, "decode spans: %w", err)
	}
	var out []Span
	for _, rs := range r.GetResourceSpans() {
		service := "unknown"
		for _, a := range rs.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = text(a.GetValue())
			}
		}
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				out = append(out, span(service, s))
			}
		}
	}
	return out, nil
}

func span(service string, s *tracepb.Span) Span {
	o := Span{
		Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		Service: service, Name: s.GetName(), Start: nano(s.GetStartTimeUnixNano()), End: nano(s.GetEndTimeUnixNano()),
	}
	if s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		o.Error = cmp.Or(s.GetStatus().GetMessage(), "error")
	}
	for _, a := range s.GetAttributes() {
		if o.Attributes == nil {
			o.Attributes = map[string]string{}
		}
		o.Attributes[a.GetKey()] = text(a.GetValue())
	}
	return o
}

func nano(n uint64) time.Time { return time.Unix(0, int64(n)).UTC() }

func text(v *common.AnyValue) string {
	switch x := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return x.StringValue
	case *common.AnyValue_IntValue:
		return strconv.FormatInt(x.IntValue, 10)
	case *common.AnyValue_BoolValue:
		return strconv.FormatBool(x.BoolValue)
	case *common.AnyValue_DoubleValue:
		return strconv.FormatFloat(x.DoubleValue, 'g', -1, 64)
	case nil:
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// where describes the worker or the node of a span by its attributes.
func (s Span) where() string {
	at := cmp.Or(s.Attributes["regroup.place"], s.Attributes["regroup.node"])
	rank, err := strconv.Atoi(s.Attributes["regroup.rank"])
	switch {
	case err != nil || rank < 0: // it has none yet
		return at
	case at == "":
		return fmt.Sprintf("r%d", rank)
	}
	return fmt.Sprintf("r%d on %s", rank, at)
}

// Rows puts the spans of one trace in the order of a waterfall: children below their parent by
// start. Spans whose parent was never stored come below the root, marked. Duplicate spans count
// once.
func Rows(spans []Span) []Row {
	byID := map[string]Span{}
	for _, s := range spans {
		if _, twice := byID[s.ID]; !twice {
			byID[s.ID] = s
		}
	}
	all := slices.SortedFunc(maps.Values(byID), func(a, b Span) int {
		return cmp.Or(a.Start.Compare(b.Start), b.End.Compare(a.End), cmp.Compare(a.ID, b.ID))
	})
	orphan := func(s Span) bool {
		_, held := byID[s.Parent]
		return s.Parent != "" && (!held || s.Parent == s.ID)
	}
	children := map[string][]Span{}
	for _, s := range all {
		if s.Parent != "" && !orphan(s) {
			children[s.Parent] = append(children[s.Parent], s)
		}
	}
	var out []Row
	seen := map[string]bool{}
	var put func(s Span, depth int, orphan bool)
	put = func(s Span, depth int, orphan bool) {
		if seen[s.ID] {
			return
		}
		seen[s.ID] = true
		out = append(out, Row{s, depth, orphan, s.where()})
		for _, c := range children[s.ID] {
			put(c, depth+1, false)
		}
	}
	for _, s := range all {
		if s.Parent == "" {
			put(s, 0, false)
		}
	}
	under := min(len(out), 1)
	for _, s := range all {
		if orphan(s) {
			put(s, under, true)
		}
	}
	for _, s := range all { // members of a cycle of parents
		put(s, under, true)
	}
	return out
}
