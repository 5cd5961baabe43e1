package liveness

import (
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// TestTheVersionIsThatOfTheNewestAgent, and not that of one that was replaced.
func TestTheVersionIsThatOfTheNewestAgent(t *testing.T) {
	m, now := Machine{}, time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	s := m.New("node-a")
	for _, hello := range []struct {
		from          ident.Incarnation
		version, want string
	}{{"A", "1.2", "1.2"}, {"B", "1.3", "1.3"}, {"A", "1.2", "1.3"}} {
		s, _ = m.Step(s, events.Input{ID: "1", Body: events.NodeHello{Node: "node-a", Incarnation: hello.from, Slots: 2, Address: "10.0.0.1", Version: hello.version, Predecessors: []ident.Incarnation{"A"}}}, now)
		if got := s.View.Version; got != hello.want {
			t.Errorf("after %q of %s the version is %q, want %q", hello.version, hello.from, got, hello.want)
		}
	}
}
