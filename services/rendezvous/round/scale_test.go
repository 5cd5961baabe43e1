package round

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// greatRig returns a job with this many nodes of eight slots, and the joins of its workers.
func greatRig(nodes int) (*rig, []events.MemberJoin) {
	r := newRig()
	r.now = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	var places ident.Places
	var joins []events.MemberJoin
	for n := range nodes {
		agent := fmt.Sprintf("01KAZ2C4XK%s", ident.Token("agent", fmt.Sprint(n))[:16])
		for s := range 8 {
			p := ident.Place{Node: ident.NodeID(fmt.Sprintf("node-%04d", n)), Slot: ident.Slot(s)}
			places = append(places, p)
			joins = append(joins, events.MemberJoin{
				Job: "j-1", Place: p, Attempt: 1, Agent: ident.Incarnation(agent), PID: 2000 + n%50 + s,
				Incarnation: ident.Incarnation(fmt.Sprintf("01KAZ3%04X%05X%s", n%7, s+1, agent[15:])),
				Address:     fmt.Sprintf("10.0.%d.%d:%d", n>>8, n&255, 32768+(n*7919+s*104729)%28000),
			})
		}
	}
	r.take(events.PlacementSet{Job: "j-1", Spec: r.spec, Workers: spec.Workers{Min: 1, Max: nodes * 8}, Places: places})
	return r, joins
}

// take applies a batch of inputs.
func (r *rig) take(all ...events.Body) events.Decision {
	var printed events.Decision
	var in events.Input
	for _, b := range all {
		in = events.Input{Body: b, Nonce: "n"}
		var d events.Decision
		r.s, d = Machine{}.Apply(r.s, in, r.now)
		printed.Facts = append(printed.Facts, d.Facts...)
	}
	s, d := Machine{}.Conclude(r.s, in, r.now)
	r.s = s
	d.Facts = append(printed.Facts, d.Facts...)
	return d
}

// TestDocumentOf40000IsSmall: a server accepts messages of at most one mebibyte.
func TestDocumentOf40000IsSmall(t *testing.T) {
	r, joins := greatRig(5000)
	size := func(what string, most int) {
		t.Helper()
		raw, err := json.Marshal(r.s.Pack())
		if err != nil {
			t.Fatal(err)
		}
		d, err := document.Encode(document.Document{Schema: document.Schema, State: raw})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d KiB, %d packed", what, len(raw)>>10, len(d)>>10)
		if len(d) > most {
			t.Errorf("%s: the document takes %d bytes, at most %d", what, len(d), most)
		}
	}
	size("placed", 128<<10)
	bodies := make([]events.Body, len(joins))
	for i, j := range joins {
		bodies[i] = j
	}
	r.take(bodies[1:]...)
	size("all but one joined", 512<<10)
	began := time.Now()
	d := r.take(bodies[0])
	t.Logf("the seal took %s", time.Since(began))
	if len(d.Launches) != 5000 || r.s.View.Generation != 1 {
		t.Fatalf("%d launches, %s", len(d.Launches), r.s.View.Generation)
	}
	size("sealed", 512<<10)
	began = time.Now()
	s, err := r.s.Pack().Unpack()
	if err != nil || len(s.Members) != 40000 || s.Members[39999] != r.s.Members[39999] {
		t.Fatalf("%v, %d members", err, len(s.Members))
	}
	t.Logf("packing and unpacking took %s", time.Since(began))
	if again := s.Launches(d.Launches[0].Revision - 1); len(again) != 5000 || fmt.Sprint(again[7]) != fmt.Sprint(d.Launches[7]) {
		t.Errorf("made again: %d launches, %v, was %v", len(again), again[7], d.Launches[7])
	}
}

// TestEveryFieldOfAMemberIsPacked: a field that Pack omits is lost when the state is stored.
func TestEveryFieldOfAMemberIsPacked(t *testing.T) {
	full := Member{
		Place: ident.Place{Node: "a b,c", Slot: 3}, State: pending, Attempt: 2, Incarnation: "life=~;1", Agent: "agent", Address: "[::1]:70", PID: 9,
		Commit: tables.Commit{Generation: 1 << 63, Step: 1 << 63, Hash: "h,h"}, Stopped: "over", Leaving: true, RejoinBy: time.Unix(5, 6000).UTC(), Unresponsive: true, Unsynced: true,
	}
	v := reflect.ValueOf(full)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("fill %s here", v.Type().Field(i).Name)
		}
	}
	second := full
	second.Place.Slot, second.Agent, second.Address, second.State = 4, "", "[::1]:71", lost
	s := State{
		Members: []Member{full, second}, Published: map[ident.NodeID]PublishedLaunch{"z": {Revision: 4, Sum: 5, At: time.Unix(9, 7000).UTC()}},
		Agents: map[ident.NodeID]ident.Incarnation{"a b,c": "agent"}, NodeFacts: map[ident.NodeID]uint64{"y": 7}, Seniority: map[ident.NodeID]ident.Generation{"y": 2},
	}
	got, err := s.Pack().Unpack()
	if got.firstRanks = nil; err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("%v\n got %+v\nwant %+v", err, got, s)
	}
	for _, bad := range []string{
		`{"nodes": "a b c", "agents": "x y"}`,
		`{"sealed": ["a/3"]}`,
		`{"members": {"places": ["a/0-2"], "states": "active lost"}}`,
	} {
		var s State
		if err := json.Unmarshal([]byte(`{"packed": `+bad+`}`), &s); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Unpack(); errcode.Of(err) != errcode.Invalid {
			t.Errorf("%s: %v, want Invalid", bad, err)
		}
	}
}

func BenchmarkProcessOf40000(b *testing.B) {
	r, joins := greatRig(5000)
	for i := range joins[1:] {
		r.s, _ = Machine{}.Apply(r.s, events.Input{Body: joins[i+1]}, r.now)
	}
	b.Run("take a join", func(b *testing.B) {
		for b.Loop() {
			r.s, _ = Machine{}.Apply(r.s, events.Input{Body: joins[1]}, r.now)
		}
	})
	b.Run("conclude", func(b *testing.B) {
		for b.Loop() {
			r.s, _ = Machine{}.Conclude(r.s, events.Input{}, r.now)
		}
	})
	var raw []byte
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			raw, _ = json.Marshal(r.s.Pack())
			raw, _ = document.Encode(document.Document{Schema: document.Schema, State: raw})
		}
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			var s State
			d, _ := document.Decode(raw)
			_ = json.Unmarshal(d.State, &s)
			_, _ = s.Unpack()
		}
	})
}
