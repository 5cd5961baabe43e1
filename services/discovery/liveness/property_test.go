package liveness_test

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/discovery/liveness"
)

func anyInput(t *rapid.T) events.Input {
	inc := ident.Incarnation(rapid.SampledFrom([]string{"A", "B", "C", "D", ""}).Draw(t, "incarnation"))
	var in events.Input
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 6:
		in.Body = anyCharge(t)
	case 7:
		in.Body = events.NodeQuarantine{Node: "node-a", Slot: anySlot(t), For: spec.Duration(rapid.IntRange(-1, 300).Draw(t, "for")) * spec.Duration(time.Second)}
	case 8:
		in.Body = events.NodeRelease{Node: "node-a", Slot: anySlot(t)}
	case 9:
		l := events.HostEntry{Node: "node-a", Excluded: rapid.SampledFrom([]string{"", "", "no line"}).Draw(t, "excluded")}
		if rapid.Bool().Draw(t, "capped") {
			n := rapid.IntRange(0, 4).Draw(t, "cap")
			l.Slots = &n
		}
		in.Body = l
	case 0:
		in.Body = events.NodeHello{Node: "node-a", Incarnation: inc, Slots: rapid.IntRange(-1, 4).Draw(t, "slots")}
	case 1:
		in.Body = events.NodeLeave{Node: "node-a", Incarnation: inc}
	case 2:
		in.Body = events.NodeDrain{Node: "node-a", Undo: rapid.Bool().Draw(t, "undo")}
	case 3:
		in.Body = events.HeartbeatMissed{Node: "node-a", Incarnation: inc, Failed: rapid.Bool().Draw(t, "failed")}
	case 4:
		in.Body = events.HeartbeatSeen{Heartbeat: events.Heartbeat{Node: "node-a", Incarnation: inc}}
	case 5:
		in.Body = events.Tick{}
	}
	return in
}

// reader is another service's picture, from the facts alone.
type reader struct {
	last     events.NodeFact
	state    events.NodeState
	current  ident.Incarnation
	replaced map[ident.Incarnation]bool
}

func (r *reader) read(t *rapid.T, b events.Body) {
	f := factOf(b)
	if r.replaced[f.Incarnation] {
		t.Fatalf("%s tells of incarnation %q, which was replaced", b.Type().Kind(), f.Incarnation)
	}
	alive := r.state == events.NodeStateReady || r.state == events.NodeStateSuspected || r.state == draining
	switch b.(type) {
	case events.NodeJoined:
		if alive && f.Incarnation != r.current {
			t.Fatalf("%q joined while %q was alive", f.Incarnation, r.current)
		}
		if r.current != "" && f.Incarnation != r.current {
			r.replaced[r.current] = true
		}
		r.state, r.current = events.NodeStateReady, f.Incarnation
	case events.NodeRecovered:
		r.state = events.NodeStateReady
	case events.NodeSuspected:
		r.state = events.NodeStateSuspected
	case events.NodeLost:
		if !alive {
			t.Fatalf("lost while %q", r.state)
		}
		r.state = events.NodeStateLost
	case events.NodeLeft:
		r.state = events.NodeStateLeft
	case events.NodeDraining:
		r.state = draining
	case events.NodeQuarantined, events.NodeReleased, events.NodeChanged:
		if state := readerView(f.State, f.Drains); state != r.state {
			t.Fatalf("%s says that the node is %q, the facts before it %q", b.Type().Kind(), state, r.state)
		}
	}
	r.last = f
}

// readerView returns a reader's picture of a node in this state.
func readerView(s events.NodeState, drains bool) events.NodeState {
	if drains && (s == events.NodeStateReady || s == events.NodeStateSuspected) {
		return draining
	}
	return s
}

// draining is a reader's picture of a node after node.draining: it is alive and gets no work.
const draining events.NodeState = "draining"

func factOf(b events.Body) events.NodeFact {
	raw, _ := json.Marshal(b)
	var f events.NodeFact
	_ = json.Unmarshal(raw, &f)
	return f
}

// TestAnyHistory: in any order of inputs, a repeated input publishes nothing new, no fact is
// published about a replaced incarnation, a node is lost only while it is alive, and the facts
// alone give the same picture as the record.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := liveness.Machine{Rules: liveness.Rules{
			Failures: 2, Losses: 2, Window: 10 * time.Second, First: time.Second, Max: 8 * time.Second, Decay: 20 * time.Second,
		}}
		s := m.New("node-a")
		r := reader{replaced: map[ident.Incarnation]bool{}}
		now := noon
		for range rapid.IntRange(1, 60).Draw(t, "length") {
			in := anyInput(t)
			now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
			if rapid.IntRange(0, 30).Draw(t, "the clock jumps") == 0 {
				now = now.Add(time.Duration(rapid.IntRange(-3600, 3600).Draw(t, "by")) * time.Second)
			}
			in.Time = now.Add(-time.Duration(rapid.SampledFrom([]int{0, 0, 0, 3, 9, 10, 60, -5}).Draw(t, "late")) * time.Second)
			var d events.Decision
			s, d = m.Step(s, in, now)
			for _, f := range d.Facts {
				if factOf(f.Body).Reason == "" {
					t.Fatalf("%s has no reason", f.Body.Type().Kind())
				}
				r.read(t, f.Body)
			}
			if d.Refusal != nil && len(d.Facts) > 0 {
				t.Fatalf("%T was refused and published facts", in.Body)
			}
			if want := readerView(s.View.State, s.View.Draining); r.state != want {
				t.Fatalf("the newest fact says %q, the record %q", r.state, want)
			}
			sameAttributes(t, r.last, s.View)
			before := text(s)
			s, d = m.Step(s, in, now)
			if len(d.Facts) > 0 || text(s) != before {
				t.Fatalf("the repeat of %+v published %v and changed %s into %s", in, d.Facts, before, text(s))
			}
		}
	})
}

func TestOnlySilentNodesAreSuspected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := newTracker()
		now := noon
		seen := map[liveness.Incarnation]time.Time{} // or start of the last timeout
		names := []ident.NodeID{"node-a", "node-b", "node-c"}
		down := false
		for _, n := range names {
			a.Update(events.NodeView{Node: n, Incarnation: "A", State: events.NodeStateReady}, now)
			seen[liveness.Incarnation{Node: n, Incarnation: "A"}] = now
		}
		grace := func() {
			for who := range seen {
				seen[who] = now
			}
		}
		a.Check(now)
		for range rapid.IntRange(1, 200).Draw(t, "length") {
			step := time.Duration(rapid.SampledFrom([]int{50, 100, 100, 100, 2000}).Draw(t, "ms")) * time.Millisecond
			now = now.Add(step)
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				if down {
					grace()
				}
				down = false
				a.Connected(true, now)
			case 1:
				down = true
				a.Connected(false, now)
			case 2, 3, 4:
				who := liveness.Incarnation{Node: rapid.SampledFrom(names).Draw(t, "node"), Incarnation: "A"}
				a.Observe(who, broker.Link{}, now)
				seen[who] = now
			}
			suspect, ask := a.Check(now)
			if step > 750*time.Millisecond {
				grace()
			}
			for _, who := range suspect {
				if down || now.Sub(seen[who]) < 1500*time.Millisecond {
					t.Fatalf("%v is suspected %s after it was heard (disconnected: %v)", who, now.Sub(seen[who]), down)
				}
			}
			for _, who := range ask {
				if down || now.Sub(seen[who]) < 3*time.Second {
					t.Fatalf("%v is to be pinged %s after it was heard (disconnected: %v)", who, now.Sub(seen[who]), down)
				}
			}
		}
	})
}
