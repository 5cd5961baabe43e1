package liveness_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/discovery/liveness"
)

// TestALostNodesLeaseOutlastsEachGrant: whatever the size of the fleet that the replicas know,
// which may be twice as large for one as for another, a place is given away after the lease.
func TestALostNodesLeaseOutlastsEachGrant(t *testing.T) {
	lease := liveness.Lease{Restart: 3 * time.Second, InPlace: time.Minute}
	m := liveness.Machine{Lease: lease}
	for _, nodes := range []int{1, 400, 500, 999, 1000, 2500, 2501, 5000, 20_000} {
		s, _ := m.Step(m.New("node-a"), events.Input{Body: events.NodeHello{Node: "node-a", Incarnation: "A", Slots: 1}}, noon)
		s, _ = m.Step(s, events.Input{Body: events.HeartbeatMissed{Node: "node-a", Incarnation: "A"}}, noon)
		s, _ = m.Step(s, events.Input{Body: events.HeartbeatMissed{Node: "node-a", Incarnation: "A", Failed: true, Silence: spec.Duration(2 * time.Second), FleetSize: nodes}}, noon)
		granted := lease.ForFleet(2 * nodes)
		ends := s.View.LeaseEnds
		if seen := noon.Add(-2 * time.Second); !ends.Restart.After(seen.Add(granted.Restart)) || !ends.InPlace.After(seen.Add(granted.InPlace)) {
			t.Errorf("%d nodes: the lease ends at %v, granted were %v", nodes, ends, granted)
		}
	}
}

// TestOnlyAReplicaThatKnowsGrantsLeases: times are in milliseconds after its newest check.
func TestOnlyAReplicaThatKnowsGrantsLeases(t *testing.T) {
	who := liveness.Incarnation{Node: "node-a", Incarnation: "A"}
	for _, c := range []struct {
		name    string
		change  func(a *liveness.HeartbeatTracker)
		after   time.Duration
		who     liveness.Incarnation
		granted bool
	}{
		{"a ready node", func(*liveness.HeartbeatTracker) {}, 100, who, true},
		{"an older incarnation", func(*liveness.HeartbeatTracker) {}, 100, liveness.Incarnation{Node: "node-a", Incarnation: "0"}, false},
		{"an unknown node", func(*liveness.HeartbeatTracker) {}, 100, liveness.Incarnation{Node: "node-b", Incarnation: "A"}, false},
		{"a suspected node", func(a *liveness.HeartbeatTracker) { a.Update(view(events.NodeStateSuspected, "A"), noon) }, 100, who, false},
		{"a lost node", func(a *liveness.HeartbeatTracker) { a.Update(view(events.NodeStateLost, "A"), noon) }, 100, who, false},
		{"a replica that is cut off", func(a *liveness.HeartbeatTracker) { a.Connected(false, noon) }, 100, who, false},
		{"a replica that was paused", func(*liveness.HeartbeatTracker) {}, 2000, who, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newTracker()
			a.Update(view(events.NodeStateReady, "A"), noon)
			a.Check(noon)
			c.change(&a)
			r := a.Renew(c.who, broker.Link{}, noon.Add(c.after*time.Millisecond))
			if got := fmt.Sprint(r.Granted, r.TimesLost); got != fmt.Sprint(c.granted, 0) {
				t.Errorf("got %s, want %v 0", got, c.granted)
			}
		})
	}
}

// TestAGrantCountsFromAProvenHeartbeat: times are in milliseconds after the first heartbeat. What
// a replica grants ends when another one expects it that heard the agent last when a proof says so.
func TestAGrantCountsFromAProvenHeartbeat(t *testing.T) {
	who := liveness.Incarnation{Node: "node-a", Incarnation: "A"}
	at := func(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }
	type proof struct{ asked, answered int }
	for _, c := range []struct {
		name         string
		beats, pings []int // heartbeats, and other signs of life
		proofs       []proof
		now          int
		want         string // whether it is granted, and its age
	}{
		{"no proof yet", []int{0, 500}, nil, nil, 600, "false"},
		{"a proof before the first heartbeat", []int{100}, nil, []proof{{50, 150}}, 600, "false"},
		{"proven at once", []int{0, 500}, nil, []proof{{550, 560}}, 600, "true 100ms"},
		{"the proof is older than the last heartbeat", []int{0, 500}, nil, []proof{{450, 550}}, 600, "true 600ms"},
		{"heartbeats go on without a proof", []int{0, 500, 1000, 1500, 2000}, nil, []proof{{400, 410}, {500, 510}}, 2100, "true 1.6s"},
		{"other replicas do not hear the answers to this one", []int{0}, []int{500, 1000}, []proof{{1100, 1110}}, 1200, "true 1.2s"},
		{"a late answer proves what was heard before its question", []int{0, 500, 1000}, nil, []proof{{900, 910}, {600, 920}}, 1100, "true 600ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newTracker()
			a.NeedsProof = true
			a.Update(view(events.NodeStateReady, "A"), noon)
			a.Check(at(c.now))
			for ms := range c.now {
				if slices.Contains(c.beats, ms) {
					a.Heartbeat(who, broker.Link{}, at(ms))
				}
				if slices.Contains(c.pings, ms) {
					a.Observe(who, broker.Link{}, at(ms))
				}
				for _, p := range c.proofs {
					if p.answered == ms {
						a.Majority(at(p.asked))
					}
				}
			}
			r := a.Renew(who, broker.Link{}, at(c.now))
			got := fmt.Sprint(r.Granted)
			if r.Granted {
				got += " " + r.Age.String()
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestSilenceCountsOnProofOnly: a replica in a rack that was cut off hears nobody else.
func TestSilenceCountsOnProofOnly(t *testing.T) {
	who := liveness.Incarnation{Node: "node-a", Incarnation: "A"}
	a := newTracker()
	a.NeedsProof = true
	a.Update(view(events.NodeStateReady, "A"), noon)
	at := noon
	// live checks until a time, with a heartbeat and a proof every 100 ms or without.
	live := func(until time.Duration, hears, proven bool) (suspected, asked int) {
		for end := noon.Add(until); at.Before(end); at = at.Add(100 * time.Millisecond) {
			if hears {
				a.Heartbeat(who, broker.Link{}, at)
			}
			if proven {
				a.Majority(at.Add(-10 * time.Millisecond))
			}
			suspect, ask := a.Check(at)
			suspected, asked = suspected+len(suspect), asked+len(ask)
		}
		return suspected, asked
	}
	for _, c := range []struct {
		what             string
		until            time.Duration
		hears, proven    bool
		suspected, asked bool
		deaf             bool
	}{
		{"all is well", 5 * time.Second, true, true, false, false, false},
		{"the rack is cut off", 60 * time.Second, false, false, false, false, true},
		{"it is back, and what it has not heard meanwhile does not count", 61 * time.Second, false, true, false, false, false},
		{"the node is silent", 70 * time.Second, false, true, true, true, false},
	} {
		suspected, asked := live(c.until, c.hears, c.proven)
		if suspected > 0 != c.suspected || asked > 0 != c.asked || a.Deaf(at) != c.deaf {
			t.Errorf("%s: suspected %d times, asked %d times, deaf %v", c.what, suspected, asked, a.Deaf(at))
		}
	}
}

// TestANodeThatIsHeardAgainIsNotLost: its silence was observed while no leader stored anything.
func TestANodeThatIsHeardAgainIsNotLost(t *testing.T) {
	who := liveness.Incarnation{Node: "node-a", Incarnation: "A"}
	var m liveness.Machine
	s, _ := m.Step(m.New("node-a"), events.Input{Body: events.NodeHello{Node: "node-a", Incarnation: "A", Slots: 1}}, noon)
	a := newTracker()
	a.Update(s.View, noon)
	a.Heartbeat(who, broker.Link{}, noon)
	now := noon.Add(3 * time.Second)
	missed := events.Input{
		Body: events.HeartbeatMissed{Node: "node-a", Incarnation: "A", Failed: true, Silence: spec.Duration(a.Silence(who, now))},
		Others: func() any {
			return liveness.Known{SeenSince: func(who liveness.Incarnation, silence time.Duration) bool { return a.SeenSince(who, silence, now) }}
		},
	}
	now = noon.Add(8 * time.Second) // nothing was stored until then
	a.Heartbeat(who, broker.Link{}, noon.Add(7*time.Second))
	if _, d := m.Step(s, missed, now); errcode.Of(d.Refusal) != errcode.Fenced || len(d.Facts) > 0 {
		t.Errorf("heard since: refused %v, published %v", d.Refusal, d.Facts)
	}
	now = noon.Add(11 * time.Second)
	if s, d := m.Step(s, missed, now); d.Refusal != nil || s.View.State != events.NodeStateLost {
		t.Errorf("silent again: refused %v, it is %s", d.Refusal, s.View.State)
	}
}
