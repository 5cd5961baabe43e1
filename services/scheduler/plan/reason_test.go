package plan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// TestReasons checks the reason in the row of job j after these facts.
func TestReasons(t *testing.T) {
	for _, c := range []struct{ name, facts, want string }{
		{"no nodes", "submit j 2:2", "needs 2 slots, more than there are: no node takes work"},
		{"all drain", "joined n1; draining n1; submit j 1:1", "needs 1 slot, more than there are: no node takes work; n1 is draining"},
		{"taken", "joined n1; submit i 2:2; submit j 1:1", "needs 1 slot, 0 free of 2 on 1 node"},
		{"too few", "joined n1; joined n2; submit i 3:3; submit j 2:2", "needs 2 slots, 1 free of 4 on 2 nodes"},
		{"behind", "joined n1; submit i 1:1; submit h 2:2; submit j 1:1", "needs 1 slot, is queued"},
		{"may come back", "joined n1; suspected n1; submit j 1:1", "needs 1 slot, no node takes work; n1 is suspected"},
		{"all it wants", "joined n1; submit j 1:2", ""},
		{"room to grow", "joined n1; submit j 1:4", "has 2 of up to 4 workers: 0 free of 2 on 1 node"},
		{"room for no multiple", "joined n1 slots=3; submit j 2:4 multiple=2", "has 2 of up to 4 workers, and trains with a multiple of 2: 1 free of 3 on 1 node"},
		{"kept for another", "joined n1 slots=4; submit j 1:1; submit h 4:4; scale j 1:4", "has 1 of up to 4 workers: free slots are kept for h, which waits"},
		{"below min", "joined n1; joined n2; submit j 3:4; lost n2", "has 2 of at least 3 workers: 0 free of 2 on 1 node"},
		{"too few left", "joined n1; joined n2; submit j 3:4 in-process; draining n2", "has 2 of at least 3 workers: 0 free of 2 on 1 node; n2 is draining"},
		{"nothing left", "joined n1; submit j 1:2; left n1", "needs 1 slot, more than there are: no node takes work"},
		{
			"quarantined", "joined n1; quarantined n2 quarantine=3m; submit i 1:1; submit j 2:2",
			"needs 2 slots, 1 free of 2 on 1 node; n2 is quarantined until 2 Jan 12:03:00 UTC: lost 3 times within 10m",
		},
		{"quarantined", "joined n1 quarantined=1; submit j 2:2", "needs 2 slots, 1 free of 1 on 1 node; n1/1 is quarantined until 2 Jan 12:01:00 UTC: 3 failures within 10m"},
		{"excluded", "joined n1; joined n2 excluded; submit j 3:3", "needs 3 slots, more than there are: 2 free of 2 on 1 node; n2 may not be used: is not in the host list"},
		{"many closed", "joined n1; suspected n2; suspected n3; suspected n4; suspected n5; suspected n6; submit j 3:3", "needs 3 slots, 2 free of 2 on 1 node; n2 is suspected; n3 is suspected; n4 is suspected; 2 more are not usable"},
		{"all quarantined", "joined n1 quarantined=0,1; submit j 1:1", "needs 1 slot, 0 free of 0 on 1 node; n1/0 is quarantined until 2 Jan 12:01:00 UTC: 3 failures within 10m; n1/1 is quarantined until 2 Jan 12:01:00 UTC: 3 failures within 10m"},
		{"behind nobody", "joined n1 slots=1; quarantined n2 quarantine=3m; submit h 2:2; submit i 1:1; submit j 1:1", "needs 1 slot, 0 free of 1 on 1 node; n2 is quarantined until 2 Jan 12:03:00 UTC: lost 3 times within 10m"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := plan.Machine{}.New(events.PoolKey)
			for line := range strings.SplitSeq(c.facts, "; ") {
				in, err := parse(line)
				if err != nil {
					t.Fatal(err)
				}
				s, _ = plan.Machine{}.Step(s, in, noon)
			}
			if got := s.View.Jobs["j"].Waiting; got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// TestPoolOfALargeClusterFits: the document must fit into one message with tens of thousands of
// slots assigned.
func TestPoolOfALargeClusterFits(t *testing.T) {
	s := plan.Machine{}.New(events.PoolKey)
	step := func(line string) {
		in, err := parse(line)
		if err != nil {
			t.Fatal(err)
		}
		s, _ = plan.Machine{}.Step(s, in, noon)
	}
	for i := range 5000 {
		step("joined node-" + strings.Repeat("x", 12) + "-" + string(rune('a'+i/676)) + string(rune('a'+i/26%26)) + string(rune('a'+i%26)) + " slots=8")
	}
	step("submit great 1:40000")
	if got := len(s.View.Jobs["great"].Places); got != 40000 {
		t.Fatalf("%d places, want 40000", got)
	}
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := document.Encode(document.Document{Schema: document.Schema, State: raw})
	if err != nil || len(doc) > 512<<10 {
		t.Errorf("the document has %d bytes (%v), want at most half of a message", len(doc), err)
	}
}
