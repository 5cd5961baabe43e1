package round

import (
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
)

// A record of a node that was read before a newer fact about it arrived, or a fact that was
// delivered late, must not cost the job a generation.
func TestOlderFactAboutANodeChangesNothing(t *testing.T) {
	r := newRig()
	for _, line := range []string{"place a/0 b/0", "join a/0", "join b/0"} {
		r.do(t, strings.Fields(line))
	}
	if r.s.View.Generation != 1 {
		t.Fatalf("not sealed: %+v", r.s.View)
	}
	about := func(number uint64, b events.Body) events.Decision {
		var d events.Decision
		r.s, d = Machine{}.Step(r.s, events.Input{Number: number, Nonce: "n", Body: b}, r.now)
		return d
	}
	node := events.NodeFact{Node: "b", Incarnation: "agent-1"}
	about(6, events.NodeJoined{NodeFact: node}) // the node was lost under number 5 and returned
	for _, number := range []uint64{5, 6} {
		for _, b := range []events.Body{events.NodeLost{NodeFact: node}, events.NodeLeft{NodeFact: node}} {
			if d := about(number, b); len(d.Facts)+len(d.Launches) > 0 || r.s.open() {
				t.Errorf("%s with number %d after 6: %v", b.Type(), number, d.Facts)
			}
		}
	}
	if about(7, events.NodeLost{NodeFact: node}); !r.s.open() {
		t.Error("a newer loss opened no round")
	}
}
