package liveness_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/services/discovery/liveness"
)

func link(count uint64) broker.Link {
	return broker.Link{Server: "S", Client: 10 + count, Count: count}
}

// asReported is a connection as the broker names it.
func asReported(count uint64) broker.Link { return broker.Link{Server: "S", Client: 10 + count} }

// TestEnds: the effects of a closed connection, in seconds after node-a was added; it sends
// heartbeats all the time over the connection in beats. Checks are every 100 ms.
func TestEnds(t *testing.T) {
	who := liveness.Incarnation{Node: "node-a", Incarnation: "A"}
	type do = func(a *liveness.HeartbeatTracker, beats *uint64, now time.Time)
	end := func(count uint64) do {
		return func(a *liveness.HeartbeatTracker, beats *uint64, now time.Time) {
			if _, ok := a.ConnectionClosed(asReported(count), now); ok {
				v := view(events.NodeStateSuspected, "A") // as the machine records it
				v.Link, v.Disconnected = link(count), true
				a.Update(v, now)
			}
			if *beats == count {
				*beats = 0
			}
		}
	}
	reconnect := func(count uint64) do {
		return func(_ *liveness.HeartbeatTracker, beats *uint64, _ time.Time) { *beats = count }
	}
	for _, c := range []struct {
		name string
		at   map[string]do
		want string
	}{
		{"it stands", nil, ""},
		{"ends for good", map[string]do{"1s": end(1)}, "ask@2s ask@3s ask@4s"},
		{"reconnects in time", map[string]do{"1s": end(1), "1.5s": reconnect(2)}, "mend@1.5s"},
		{"is reported late", map[string]do{"1s": reconnect(2), "2s": end(1)}, "mend@1s"},
		{"of somebody else", map[string]do{"1s": end(7)}, ""},
		{"a heartbeat that was on its way", map[string]do{"1s": end(1), "1.1s": func(a *liveness.HeartbeatTracker, _ *uint64, now time.Time) {
			a.Observe(who, link(1), now)
		}}, "ask@2s ask@3s ask@4s"},
		{"reported before its owner is known", map[string]do{"1s": func(a *liveness.HeartbeatTracker, beats *uint64, now time.Time) {
			a.ConnectionClosed(asReported(2), now)
			a.Observe(who, link(2), now)
			*beats = 0
		}}, "cut@1s ask@2s suspect@2.4s cut@2.5s ask@3s suspect@3.9s cut@4s ask@4s"},
		{"on record, and the replica has just come", map[string]do{"1s": func(a *liveness.HeartbeatTracker, beats *uint64, now time.Time) {
			v := view(events.NodeStateSuspected, "A")
			v.Link, v.Disconnected = link(1), true
			a.Update(v, now)
			*beats = 0
		}}, "ask@2s ask@3s ask@4s"},
		{"the replica is cut off meanwhile", map[string]do{
			"1s":   end(1),
			"1.5s": func(a *liveness.HeartbeatTracker, _ *uint64, now time.Time) { a.Connected(false, now) },
			"2.5s": func(a *liveness.HeartbeatTracker, _ *uint64, now time.Time) { a.Connected(true, now) },
		}, "ask@3.5s ask@4.5s"},
		{"a new incarnation", map[string]do{"1s": end(1), "1.5s": func(a *liveness.HeartbeatTracker, _ *uint64, now time.Time) {
			v := view(events.NodeStateReady, "B")
			v.Link = broker.Link{Server: "S", Client: 99, Count: 1}
			a.Update(v, now)
		}}, "suspect@3s suspect@4.5s ask@4.5s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newTracker()
			v := view(events.NodeStateReady, "A")
			v.Link = link(1)
			a.Update(v, noon)
			recorded, beats, got := link(1), uint64(1), ""
			for at := time.Duration(0); at < 5*time.Second; at += 100 * time.Millisecond {
				now := noon.Add(at)
				if do := c.at[at.String()]; do != nil {
					do(&a, &beats, now)
				}
				if beats > 0 && a.Observe(who, link(beats), now) && link(beats).After(recorded) {
					got += fmt.Sprintf(" mend@%s", at)
					recorded = link(beats)
					v.Link = recorded
					a.Update(v, now)
				}
				got += seen(&a, at)
			}
			if want := c.want; got != want && got != " "+want {
				t.Errorf("got%s, want %s", got, want)
			}
		})
	}
}

// TestBrokerIsBlamedWhenMostAreDisconnected: all nodes must reconnect to the same brokers.
func TestBrokerIsBlamedWhenMostAreDisconnected(t *testing.T) {
	for cuts, want := range map[uint64]time.Duration{2: time.Second, 4: time.Second, 5: 3 * time.Second, 8: 3 * time.Second} {
		a := newTracker()
		for i := range uint64(8) {
			v := view(events.NodeStateReady, "A")
			v.Node, v.Link = ident.NodeID(fmt.Sprint("node-", i)), link(i+1)
			a.Update(v, noon)
		}
		for i := range cuts {
			if cut, ok := a.ConnectionClosed(asReported(i+1), noon); !ok || cut.Node != ident.NodeID(fmt.Sprint("node-", i)) {
				t.Fatalf("end %d is of %v", i, cut)
			}
		}
		for at := time.Duration(0); ; at += 100 * time.Millisecond {
			if _, ask := a.Check(noon.Add(at)); len(ask) > 0 {
				if at != want {
					t.Errorf("%d of 8 are cut: pinged after %s, want %s", cuts, at, want)
				}
				break
			}
			if at > time.Minute {
				t.Fatalf("%d of 8 are disconnected: none is ever pinged", cuts)
			}
		}
	}
}

func newTracker() liveness.HeartbeatTracker {
	return liveness.HeartbeatTracker{
		SuspectAfter: 1500 * time.Millisecond, LostAfter: 3 * time.Second, Gap: 750 * time.Millisecond, ReconnectWithin: time.Second,
	}
}

// seen formats the result of one check.
func seen(a *liveness.HeartbeatTracker, at time.Duration) string {
	got := ""
	for range a.Disconnections(noon.Add(at)) {
		got += fmt.Sprintf(" cut@%s", at)
	}
	suspect, ask := a.Check(noon.Add(at))
	for range suspect {
		got += fmt.Sprintf(" suspect@%s", at)
	}
	for range ask {
		got += fmt.Sprintf(" ask@%s", at)
	}
	return got
}
