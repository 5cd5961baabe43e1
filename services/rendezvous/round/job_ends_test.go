package round

import (
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
)

// TestAStopSaysWhetherTheJobEnds: a node that the job has left may get it again, and is told when
// it ends too.
func TestAStopSaysWhetherTheJobEnds(t *testing.T) {
	t.Parallel()
	r := newRig()
	do := func(line string) { r.do(t, strings.Fields(line)) }
	stops := func() string {
		var all []string
		for _, l := range r.s.Launches(0) {
			if text := string(l.Node); l.Phase == events.PhaseStop {
				if l.JobEnds {
					text += " for ever"
				}
				all = append(all, text)
			}
		}
		return strings.Join(all, ", ")
	}
	for line := range strings.SplitSeq(`place a/0 b/0 min=2 max=2 recovery=restart
join a/0
join b/0
place a/0 c/0 min=2 max=2 recovery=restart
join a/0 incarnation=a/0#2
join c/0
exit b/0 g=1 asked`, "\n") {
		do(line)
	}
	if got := stops(); got != "b" {
		t.Errorf("after the job has left b, stops are %q", got)
	}
	do("stopping")
	if got := stops(); got != "a for ever, b for ever, c for ever" {
		t.Errorf("as the job ends, stops are %q", got)
	}
}
