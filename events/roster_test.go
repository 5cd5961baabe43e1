package events

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
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
	p := Places{{"node-a", 0}, {"node-a", 1}, {"node-a", 2}, {"node-b", 0}, {"node-b", 2}, {"node-b", 5}, {"node-b", 6}, {"node-a", 3}}
	if got := roundTrip(t, p); got != `["node-a/0-2","node-b/0,2,5-6","node-a/3"]` {
		t.Error(got)
	}
	for _, bad := range []string{`["node-a"]`, `["node-a/x"]`, `["node-a/3-1"]`, `["node-a/0-99999999"]`, `[3]`, `{}`} {
		if err := json.Unmarshal([]byte(bad), new(Places)); CodeOf(err) != Invalid {
			t.Errorf("%s: %v, want Invalid", bad, err)
		}
	}
	var old Places
	if err := json.Unmarshal([]byte(`[{"node":"node-a","slot":1}, "node-b/0"]`), &old); err != nil || fmt.Sprint(old) != "[node-a/1 node-b/0]" {
		t.Errorf("%v %v", old, err)
	}
}

// great is the roster of a large generation as agents make it.
func great(nodes, slots int) Roster {
	var r Roster
	for n := range nodes {
		agent := Token("agent", fmt.Sprint(n))
		agent = "01KAZ2C4XK" + strings.ToUpper(agent[:16])
		for s := range slots {
			life := fmt.Sprintf("01KAZ3%04X%05X%s", n%7, s+1, agent[15:])
			r = append(r, Member{
				Place: Place{NodeID(fmt.Sprintf("node-%04d", n)), Slot(s)}, Incarnation: Incarnation(life), Agent: Incarnation(agent), Attempt: 1,
				Address: fmt.Sprintf("10.%d.%d.%d:%d", n>>16, n>>8&255, n&255, 32768+(n*7919+s*104729)%28000), PID: 2000 + n%50 + s,
				Commit: Commit{Generation: 3, Step: 1200, Hash: "9f86d081884c7d65"},
			})
		}
	}
	r.Number()
	return r
}

func TestARosterOf40000IsSmall(t *testing.T) {
	r := great(5000, 8)
	plain := roundTrip(t, r)
	d, err := EncodeDocument(Document{Schema: DocumentSchema, State: json.RawMessage(plain)})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes as JSON, %d packed: %.1f per rank", len(plain), len(d), float64(len(d))/40000)
	if len(d) > 400<<10 {
		t.Errorf("a roster of 40000 takes %d bytes", len(d))
	}
}

// TestASealOf40000IsAMessage: a server takes a mebibyte.
func TestASealOf40000IsAMessage(t *testing.T) {
	e := Event{ID: "rendezvous-great-0001-round-2", Source: "/regroup/rendezvous", Entity: "great-0001", Number: 2, Body: RoundSealed{
		Job: "great-0001", Generation: 1, Members: great(5000, 8), Cause: Cause{Kind: CauseStart, Rank: -1},
	}}
	m, err := e.Message()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", len(m.Data))
	if len(m.Data) > 400<<10 || len(m.Header[headerEncoding]) != 1 {
		t.Errorf("%d bytes, headers %v", len(m.Data), m.Header)
	}
	got, err := Decode(m.Header, m.Data)
	if err != nil || !reflect.DeepEqual(got.Body, e.Body) {
		t.Errorf("it does not read back: %v", err)
	}
	for _, bad := range []string{"br", "gzip"} {
		m.Header[headerEncoding] = []string{bad}
		if _, err := Decode(m.Header, []byte("{}")); CodeOf(err) != Invalid {
			t.Errorf("encoding %s of no such data: %v, want Invalid", bad, err)
		}
	}
}

func TestAnyRosterReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[A-Z0-9:.é"-]{0,8}`)
		var r Roster
		for n := range rapid.IntRange(0, 4).Draw(t, "nodes") {
			agent := Incarnation(text.Draw(t, "agent"))
			for s := range rapid.IntRange(1, 4).Draw(t, "slots") {
				r = append(r, Member{
					Place: Place{NodeID(fmt.Sprint("n", n)), Slot(s * rapid.IntRange(1, 2).Draw(t, "gap"))}, Incarnation: Incarnation("X" + text.Draw(t, "life") + "Y"), Agent: agent,
					Attempt: rapid.IntRange(0, 2).Draw(t, "attempt"), Address: rapid.SampledFrom([]string{"", "a:1", "a:2", "[::1]:4", "a:01", "b:1", "x"}).Draw(t, "address"),
					PID: rapid.IntRange(0, 1).Draw(t, "pid"), Commit: Commit{Step: rapid.Uint64Range(0, 1).Draw(t, "step"), Hash: text.Draw(t, "hash")},
				})
			}
		}
		if r == nil {
			r = Roster{}
		}
		r.Number()
		if len(r) > 0 && rapid.Bool().Draw(t, "odd") {
			r[rapid.IntRange(0, len(r)-1).Draw(t, "which")].Rank++
		}
		roundTrip(t, r)
	})
}

func TestAnyCrewReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := JobView{Job: "a-0001", Workers: Crew{}}
		for n := range rapid.IntRange(0, 3).Draw(t, "nodes") {
			for s := range rapid.IntRange(1, 3).Draw(t, "slots") {
				w := WorkerView{
					WorkerRef: WorkerRef{
						Job: "a-0001", Place: Place{NodeID(fmt.Sprint("n", n)), Slot(s)}, Incarnation: Incarnation(rapid.SampledFrom([]string{"", "AB", "AC", "BC"}).Draw(t, "life")),
						Agent: Incarnation(rapid.SampledFrom([]string{"", "Q"}).Draw(t, "agent")), Attempt: rapid.IntRange(0, 2).Draw(t, "attempt"),
						Generation: Generation(rapid.IntRange(0, 2).Draw(t, "generation")), PID: rapid.IntRange(0, 1).Draw(t, "pid"),
					},
					Rank: rapid.IntRange(-1, 1).Draw(t, "rank"), State: rapid.SampledFrom([]WorkerState{WorkerIsReady, WorkerIsLost}).Draw(t, "state"),
				}
				if rapid.Bool().Draw(t, "said") {
					w.Detail, w.Lines = "killed", []string{"last", `"words"`}
					w.Exception = &Exception{Type: "ValueError", Message: `"x"`, File: "a.py", Line: 3}
				}
				v.Workers = append(v.Workers, w)
			}
		}
		roundTrip(t, v)
	})
}

func BenchmarkRoster(b *testing.B) {
	r := great(5000, 8)
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
			var out Roster
			_ = json.Unmarshal(plain, &out)
		}
	})
}
