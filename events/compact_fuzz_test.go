package events

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// again decodes, encodes and decodes: what was accepted must be encoded to the same bytes.
func again[T any](t *testing.T, b []byte) {
	t.Helper()
	var v, w T
	if json.Unmarshal(b, &v) != nil {
		return
	}
	first, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%T: decoded and not encoded again: %v", v, err)
	}
	if err := json.Unmarshal(first, &w); err != nil {
		t.Fatalf("%T: %s is not understood: %v", v, first, err)
	}
	second, err := json.Marshal(w)
	if err != nil || !bytes.Equal(first, second) {
		t.Fatalf("%T: %s becomes %s (%v)", v, first, second, err)
	}
}

// FuzzCompact: the compact encodings lose nothing and no input panics.
func FuzzCompact(f *testing.F) {
	f.Add([]byte(`["node-a/0-7","node-b/0,2,5-7"]`))
	f.Add([]byte(`[{"node":"node-a","slot":3}]`))
	f.Add([]byte(`["node-a/7-0","/1","node-a/","node-a/1-99999999999999999999"]`))
	f.Add([]byte("[\"node\x80/0\"]"))
	f.Add([]byte(`{"places":["node-a/0-1"],"agents":{"values":["x","y"],"counts":1},"workers":["é","è"]}`))
	for _, v := range []any{
		ident.Places{{Node: "node-a", Slot: 1}, {Node: "node-a", Slot: 2}, {Node: "b"}},
		tables.MemberTable{{Place: ident.Place{Node: "node-a", Slot: 1}, Incarnation: "01K00000000000000000000000", Rank: 1, Address: "10.0.0.1:7"}},
		JobView{Job: "job-a", State: JobStateRunning, Spec: spec.Job{Name: "job"}.WithDefaults()},
		Launch{Job: "job-a", Node: "node-a", Revision: 7, Phase: PhaseRun, Generation: 2},
	} {
		b, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		again[ident.Places](t, b)
		again[tables.MemberTable](t, b)
		again[JobView](t, b)
		again[Launch](t, b)
	})
}
