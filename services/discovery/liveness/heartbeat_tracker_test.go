package liveness_test

import (
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/services/discovery/liveness"
)

func view(state events.NodeState, inc ident.Incarnation) events.NodeView {
	return events.NodeView{Node: "node-a", Incarnation: inc, State: state}
}

// TestHeartbeatTracker: times are in seconds after the node was added; checks are every 100 ms.
func TestHeartbeatTracker(t *testing.T) {
	who := liveness.Incarnation{Node: "node-a", Incarnation: "A"}
	for _, c := range []struct {
		name string
		at   map[string]func(a *liveness.HeartbeatTracker, now time.Time)
		want string
	}{
		{"silent from the start", nil, "suspect@1.5s suspect@3s ask@3s suspect@4.5s"},
		{"heard once", map[string]func(*liveness.HeartbeatTracker, time.Time){
			"1.4s": func(a *liveness.HeartbeatTracker, now time.Time) { a.Observe(who, broker.Link{}, now) },
		}, "suspect@2.9s suspect@4.4s ask@4.4s"},
		{"an old incarnation does not count", map[string]func(*liveness.HeartbeatTracker, time.Time){
			"1.4s": func(a *liveness.HeartbeatTracker, now time.Time) {
				a.Observe(liveness.Incarnation{Node: "node-a", Incarnation: "0"}, broker.Link{}, now)
			},
		}, "suspect@1.5s suspect@3s ask@3s suspect@4.5s"},
		{"known to be suspected", map[string]func(*liveness.HeartbeatTracker, time.Time){
			"1.6s": func(a *liveness.HeartbeatTracker, now time.Time) { a.Update(view(events.NodeStateSuspected, "A"), now) },
		}, "suspect@1.5s ask@3s"},
		{"a new incarnation gets a full timeout", map[string]func(*liveness.HeartbeatTracker, time.Time){
			"1.4s": func(a *liveness.HeartbeatTracker, now time.Time) { a.Update(view(events.NodeStateReady, "B"), now) },
		}, "suspect@2.9s suspect@4.4s ask@4.4s"},
		{"lost nodes are not aged", map[string]func(*liveness.HeartbeatTracker, time.Time){
			"1.4s": func(a *liveness.HeartbeatTracker, now time.Time) { a.Update(view(events.NodeStateLost, "A"), now) },
		}, ""},
		{"forgotten nodes are not aged", map[string]func(*liveness.HeartbeatTracker, time.Time){
			"1.4s": func(a *liveness.HeartbeatTracker, _ time.Time) { a.Forget("node-a") },
		}, ""},
		{"cut off, then a full grace", map[string]func(*liveness.HeartbeatTracker, time.Time){
			"1s":   func(a *liveness.HeartbeatTracker, now time.Time) { a.Connected(false, now) },
			"2.9s": func(a *liveness.HeartbeatTracker, now time.Time) { a.Connected(true, now) },
		}, "suspect@4.4s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newTracker()
			a.Update(view(events.NodeStateReady, "A"), noon)
			got := ""
			for at := time.Duration(0); at < 5*time.Second; at += 100 * time.Millisecond {
				if do := c.at[at.String()]; do != nil {
					do(&a, noon.Add(at))
				}
				got += seen(&a, at)
			}
			if want := c.want; got != want && got != " "+want {
				t.Errorf("got%s, want %s", got, want)
			}
		})
	}
}

// TestSilenceOfOneThatWasNeverHeard: a replica that has just started knows an agent from the record
// alone. For how long it was silent before that it does not know.
func TestSilenceOfOneThatWasNeverHeard(t *testing.T) {
	a := newTracker()
	old := liveness.Incarnation{Node: "node-a", Incarnation: "A"}
	a.Update(view(events.NodeStateReady, "A"), noon)
	next := events.NodeHello{Node: "node-a", Incarnation: "B"}
	if got := a.SilentBefore(next, noon.Add(time.Second)); got != 0 || !a.Unheard(old) {
		t.Errorf("never heard: silent for %s, want unknown", got)
	}
	a.Observe(old, broker.Link{}, noon.Add(time.Second))
	if got := a.SilentBefore(next, noon.Add(3*time.Second)); got != 2*time.Second || a.Unheard(old) {
		t.Errorf("heard two seconds before its successor: silent for %s", got)
	}
	if got := a.SilentBefore(events.NodeHello{Node: "node-a", Incarnation: "A"}, noon.Add(3*time.Second)); got != 0 {
		t.Errorf("its own hello: %s", got)
	}
	if !a.Unheard(liveness.Incarnation{Node: "node-a", Incarnation: "B"}) || !a.Unheard(liveness.Incarnation{Node: "node-b"}) {
		t.Error("one that is not tracked was heard")
	}
}

func TestObserveReportsStaleRecords(t *testing.T) {
	var a liveness.HeartbeatTracker
	who := liveness.Incarnation{Node: "node-a", Incarnation: "A"}
	if a.Observe(who, broker.Link{}, noon) {
		t.Error("a node that is not on record was to be mended")
	}
	a.Update(view(events.NodeStateReady, "A"), noon)
	if a.Observe(who, broker.Link{}, noon) {
		t.Error("a ready node was to be mended")
	}
	a.Update(view(events.NodeStateSuspected, "A"), noon)
	if !a.Observe(who, broker.Link{}, noon) {
		t.Error("a suspected node was heard and its record is not updated")
	}
}

func TestGapBetweenChecksRestartsTimeouts(t *testing.T) {
	a := newTracker()
	a.Update(view(events.NodeStateReady, "A"), noon)
	a.Check(noon)
	if suspect, ask := a.Check(noon.Add(time.Minute)); len(suspect)+len(ask) > 0 {
		t.Errorf("after a minute without a look %v %v are accused", suspect, ask)
	}
	a.Skip(noon.Add(62 * time.Second)) // pings took two seconds
	if suspect, _ := a.Check(noon.Add(62 * time.Second)); len(suspect) != 1 {
		t.Error("time spent on pings counted as a gap")
	}
}

// TestPingIsVoidOnceTheNodeWasHeard: a node that was briefly disconnected says hello to another
// replica while this one still waits for the answer to its ping.
func TestPingIsVoidOnceTheNodeWasHeard(t *testing.T) {
	start := time.Unix(1000, 0)
	who := liveness.Incarnation{Node: "node-a", Incarnation: "A"}
	view := func(s events.NodeState) events.NodeView {
		return events.NodeView{Node: who.Node, Incarnation: who.Incarnation, State: s}
	}
	for name, seen := range map[string]func(*liveness.HeartbeatTracker, time.Time){
		"by this replica": func(a *liveness.HeartbeatTracker, now time.Time) { a.Observe(who, broker.Link{}, now) },
		"by another one":  func(a *liveness.HeartbeatTracker, now time.Time) { a.Update(view(events.NodeStateReady), now) },
	} {
		a := liveness.HeartbeatTracker{SuspectAfter: time.Second, LostAfter: 2 * time.Second, Gap: time.Hour}
		a.Update(view(events.NodeStateReady), start)
		a.Check(start.Add(time.Second))
		a.Update(view(events.NodeStateSuspected), start.Add(time.Second))
		if _, ask := a.Check(start.Add(2 * time.Second)); len(ask) != 1 || !a.PingPending(who) {
			t.Fatalf("%s: after 2 s of silence %v are pinged, want node-a", name, ask)
		}
		seen(&a, start.Add(2100*time.Millisecond))
		if a.PingPending(who) {
			t.Errorf("%s: heard, and a failed ping would still count", name)
		}
		if _, ask := a.Check(start.Add(3 * time.Second)); len(ask) != 0 {
			t.Errorf("%s: heard 0.9 s ago, and pinged again", name)
		}
	}
}
