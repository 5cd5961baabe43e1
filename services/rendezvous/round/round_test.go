package round

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// TestProperties applies random inputs in any order to one round and checks the invariants.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m Machine
		s := m.New("j-1")
		jobSpec := spec.Job{Name: "j", Command: []string{"x"}, Recovery: rapid.SampledFrom([]spec.Recovery{spec.RecoveryInProcess, spec.RecoveryRestart}).Draw(t, "recovery")}.WithDefaults()
		workers := spec.Workers{Min: rapid.IntRange(1, 3).Draw(t, "min")}
		workers.Max = workers.Min + rapid.IntRange(0, 3).Draw(t, "more")
		now := time.Unix(1000, 0).UTC()
		sealed, closed, number := ident.Generation(0), false, uint64(0)
		place := rapid.Custom(func(t *rapid.T) ident.Place {
			return ident.Place{Node: rapid.SampledFrom([]ident.NodeID{"a", "b", "c"}).Draw(t, "node"), Slot: ident.Slot(rapid.IntRange(0, 1).Draw(t, "slot"))}
		})
		for range rapid.IntRange(1, 120).Draw(t, "inputs") {
			drawn := anyInput(t, place, s, jobSpec, workers)
			now = now.Add(time.Duration(rapid.IntRange(0, 700).Draw(t, "ms")) * time.Millisecond)
			// The effects of time come first: they are not part of the input.
			for _, b := range []events.Body{events.Tick{}, drawn} {
				number++
				in := events.Input{ID: fmt.Sprint(number), Number: number, Nonce: "n", Body: b}
				var d events.Decision
				s, d = m.Step(viaJSON(t, s), in, now)
				for _, f := range d.Facts {
					if x, ok := f.Body.(events.RoundSealed); ok {
						if x.Generation != sealed+1 {
							t.Fatalf("sealed %s after %s", x.Generation, sealed)
						}
						if closed {
							t.Fatal("sealed after the end")
						}
						sealed = x.Generation
						checkSealed(t, x, workers)
					}
				}
				closed = closed || s.closed()
				if closed && !s.closed() {
					t.Fatal("terminal did not stay terminal")
				}
				if dl := m.Deadline(s); !dl.IsZero() && dl.Before(now) {
					t.Fatalf("deadline %s is over and nothing was done about it", now.Sub(dl))
				}
				// A repeated input publishes nothing, unless time does.
				again, d2 := m.Step(viaJSON(t, s), in, now)
				if len(d2.Facts) != 0 {
					t.Fatalf("%T published %v when repeated", b, d2.Facts)
				}
				if !reflect.DeepEqual(again.View, s.View) {
					t.Fatalf("%T repeated changed the view from %+v to %+v", b, s.View, again.View)
				}
			}
		}
	})
}

func checkSealed(t *rapid.T, x events.RoundSealed, w spec.Workers) {
	seen := map[ident.Place]bool{}
	for i, m := range x.Members {
		if int(m.Rank) != i || seen[m.Place] || m.Incarnation == "" {
			t.Fatalf("bad member %d: %+v", i, m)
		}
		seen[m.Place] = true
	}
	if n := len(x.Members); n < w.Min || n > w.Max {
		t.Fatalf("world %d is not within %d:%d", n, w.Min, w.Max)
	}
}

// viaJSON stores and loads a state.
func viaJSON(t *rapid.T, s State) State {
	b, err := json.Marshal(s.Pack())
	if err != nil {
		t.Fatal(err)
	}
	var out State
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	out, err = out.Unpack()
	if err != nil {
		t.Fatal(err)
	}
	if twice, err := json.Marshal(out.Pack()); err != nil || string(twice) != string(b) {
		t.Fatalf("stored again it is another: %s, was %s, %v", twice, b, err)
	}
	return out
}

func anyInput(t *rapid.T, place *rapid.Generator[ident.Place], s State, jobSpec spec.Job, w spec.Workers) events.Body {
	p := place.Draw(t, "place")
	attempt := rapid.IntRange(1, 3).Draw(t, "attempt")
	if x := s.member(p); x != nil && rapid.IntRange(0, 4).Draw(t, "right") > 0 {
		attempt = x.Attempt
	}
	incarnation := ident.Incarnation(fmt.Sprintf("%s#%d", p, attempt))
	gen := ident.Generation(rapid.Uint64Range(0, uint64(s.View.Generation)+1).Draw(t, "g"))
	ref := tables.WorkerRef{Job: "j-1", Place: p, Incarnation: incarnation, Attempt: attempt, Generation: gen}
	exit := events.WorkerExited{WorkerRef: ref, ExitCode: rapid.IntRange(0, 1).Draw(t, "code"), Done: rapid.Bool().Draw(t, "done"), Asked: rapid.IntRange(0, 5).Draw(t, "asked") == 0}
	node := events.NodeFact{Node: p.Node, Incarnation: ident.Incarnation(fmt.Sprintf("agent-%d", rapid.IntRange(1, 2).Draw(t, "agent")))}
	switch rapid.IntRange(0, 24).Draw(t, "kind") {
	case 0, 1, 2:
		return events.PlacementSet{Job: "j-1", Spec: jobSpec, Workers: w, Places: rapid.SliceOfNDistinct(place, w.Min, w.Max, func(p ident.Place) ident.Place { return p }).Draw(t, "places")}
	case 3:
		return exit
	case 4:
		return events.Notice{Exited: exit}
	case 5:
		return events.WorkerReady{WorkerRef: ref}
	case 6, 7:
		return events.JobRespawned{Job: "j-1", Place: p, Dead: incarnation, Attempt: attempt + 1}
	case 8:
		return events.JobRespawnDenied{Job: "j-1", Place: p, Dead: incarnation}
	case 9:
		return events.NodeLost{NodeFact: node}
	case 10:
		return events.NodeJoined{NodeFact: node}
	case 11:
		return events.Heartbeat{Node: p.Node}
	case 12:
		if rapid.IntRange(0, 5).Draw(t, "end") == 0 {
			return events.JobFailed{JobEnd: events.JobEnd{Job: "j-1"}}
		}
		return events.Tick{}
	case 13, 14:
		return events.Tick{}
	}
	j := events.MemberJoin{Job: "j-1", Place: p, Incarnation: incarnation, Agent: node.Incarnation, Attempt: attempt, Left: gen, Planned: rapid.Bool().Draw(t, "planned"), Address: p.String(), Unsynced: rapid.Bool().Draw(t, "unsynced")}
	if rapid.Bool().Draw(t, "accuses") {
		j.Accused = []int{rapid.IntRange(0, 5).Draw(t, "rank")}
	}
	return j
}
