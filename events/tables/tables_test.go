package tables_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/eventstest"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
)

func roundTrip[T any](t interface{ Fatalf(string, ...any) }, in T) string {
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatalf("%v", err)
	}
	var out T
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	if !reflect.DeepEqual(in, out) {
		t.Fatalf("%s reads as\n%+v, was\n%+v", b, out, in)
	}
	return string(b)
}

func TestPlacesAreShort(t *testing.T) {
	p := ident.Places{{Node: "node-a", Slot: 0}, {Node: "node-a", Slot: 1}, {Node: "node-a", Slot: 2}, {Node: "node-b", Slot: 0}, {Node: "node-b", Slot: 2}, {Node: "node-b", Slot: 5}, {Node: "node-b", Slot: 6}, {Node: "node-a", Slot: 3}}
	if got := roundTrip(t, p); got != `["node-a/0-2","node-b/0,2,5-6","node-a/3"]` {
		t.Error(got)
	}
	for _, bad := range []string{`["node-a"]`, `["node-a/x"]`, `["node-a/3-1"]`, `["node-a/0-99999999"]`, `[3]`, `{}`} {
		if err := json.Unmarshal([]byte(bad), new(ident.Places)); errcode.Of(err) != errcode.Invalid {
			t.Errorf("%s: %v, want Invalid", bad, err)
		}
	}
	var plain ident.Places
	if err := json.Unmarshal([]byte(`[{"node":"node-a","slot":1}, {"node":"node-b","slot":0}]`), &plain); err != nil || fmt.Sprint(plain) != "[node-a/1 node-b/0]" {
		t.Errorf("%v %v", plain, err)
	}
}

func TestTextBeyondASCII(t *testing.T) {
	for _, incarnations := range [][2]ident.Incarnation{
		{"é", "è"},   // the same first byte
		{"aé", "a©"}, // the same last byte
		{"☃", "☃☃"},
		{"a\u2603b", "a\u2604b"},
	} {
		table := tables.WorkerTable{}
		for slot, of := range incarnations {
			table = append(table, tables.WorkerView{WorkerRef: tables.WorkerRef{Place: ident.Place{Node: "node-a", Slot: ident.Slot(slot)}, Incarnation: of}, Rank: -1})
		}
		roundTrip(t, table)
	}
	// As encoding/json reads it in other places.
	var p ident.Places
	if err := json.Unmarshal([]byte("[\"node\xff/0\"]"), &p); err != nil || p[0].Node != "node\ufffd" {
		t.Errorf("%q, %v", p, err)
	}
}

func TestMemberTableOf40000IsSmall(t *testing.T) {
	r := eventstest.SampleMembers(5000, 8)
	plain := roundTrip(t, r)
	d, err := document.Encode(document.Document{Schema: document.Schema, State: json.RawMessage(plain)})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes as JSON, %d packed: %.1f per rank", len(plain), len(d), float64(len(d))/40000)
	if len(d) > 400<<10 {
		t.Errorf("a table of 40000 takes %d bytes", len(d))
	}
}

func TestMemberTableRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[A-Z0-9:.é"-]{0,8}`)
		var r tables.MemberTable
		for n := range rapid.IntRange(0, 4).Draw(t, "nodes") {
			agent := ident.Incarnation(text.Draw(t, "agent"))
			for s := range rapid.IntRange(1, 4).Draw(t, "slots") {
				r = append(r, tables.Member{
					Place: ident.Place{Node: ident.NodeID(fmt.Sprint("n", n)), Slot: ident.Slot(s * rapid.IntRange(1, 2).Draw(t, "gap"))}, Incarnation: ident.Incarnation("X" + text.Draw(t, "incarnation") + "Y"), Agent: agent,
					Attempt: rapid.IntRange(0, 2).Draw(t, "attempt"), Address: rapid.SampledFrom([]string{"", "a:1", "a:2", "[::1]:4", "a:01", "b:1", "x"}).Draw(t, "address"),
					PID: rapid.IntRange(0, 1).Draw(t, "pid"), Commit: tables.Commit{Step: rapid.Uint64Range(0, 1).Draw(t, "step"), Hash: text.Draw(t, "hash")},
				})
			}
		}
		if r == nil {
			r = tables.MemberTable{}
		}
		r.Number()
		if len(r) > 0 && rapid.Bool().Draw(t, "odd") {
			r[rapid.IntRange(0, len(r)-1).Draw(t, "which")].Rank++
		}
		roundTrip(t, r)
	})
}

func TestWorkerTableRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := events.JobView{Job: "a-0001", Workers: tables.WorkerTable{}}
		for n := range rapid.IntRange(0, 3).Draw(t, "nodes") {
			for s := range rapid.IntRange(1, 3).Draw(t, "slots") {
				w := tables.WorkerView{
					WorkerRef: tables.WorkerRef{
						Job: "a-0001", Place: ident.Place{Node: ident.NodeID(fmt.Sprint("n", n)), Slot: ident.Slot(s)}, Incarnation: ident.Incarnation(rapid.SampledFrom([]string{"", "AB", "AC", "BC"}).Draw(t, "incarnation")),
						Agent: ident.Incarnation(rapid.SampledFrom([]string{"", "Q"}).Draw(t, "agent")), Attempt: rapid.IntRange(0, 2).Draw(t, "attempt"),
						Generation: ident.Generation(rapid.IntRange(0, 2).Draw(t, "generation")), PID: rapid.IntRange(0, 1).Draw(t, "pid"),
					},
					Rank: ident.Rank(rapid.IntRange(-1, 1).Draw(t, "rank")), State: rapid.SampledFrom([]tables.WorkerState{tables.WorkerStateReady, tables.WorkerStateLost}).Draw(t, "state"),
				}
				if rapid.Bool().Draw(t, "said") {
					w.Detail, w.Lines = "killed", []string{"last", `"words"`}
					w.Exception = &tables.Exception{Type: "ValueError", Message: `"x"`, File: "a.py", Line: 3}
				}
				v.Workers = append(v.Workers, w)
			}
		}
		roundTrip(t, v)
	})
}

func BenchmarkMemberTable(b *testing.B) {
	r := eventstest.SampleMembers(5000, 8)
	plain, err := json.Marshal(r)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			_, _ = json.Marshal(r)
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			var out tables.MemberTable
			_ = json.Unmarshal(plain, &out)
		}
	})
}
