package round

import (
	"strings"
	"testing"
)

// TestExitExplainsTheOpenRound: the notice that a worker is dying opens the round or settles whom
// it waits for; the exit, which may come before the seal, says more.
func TestExitExplainsTheOpenRound(t *testing.T) {
	t.Parallel()
	r := newRig()
	for line := range strings.SplitSeq(`place a/0 a/1 b/0 min=2 max=3
join a/0
join a/1
join b/0
ready a/0 g=1
join a/0 left=1 accused=2
exit b/0 g=1 noticed detail=dying`, "\n") {
		r.do(t, strings.Fields(line))
	}
	if got := r.s.View.Cause.Detail; got != "dying" {
		t.Fatalf("the cause is %q", got)
	}
	r.do(t, strings.Fields("exit b/0 g=1 detail=SIGKILL"))
	if got := r.s.View.Cause.Detail; got != "SIGKILL" {
		t.Errorf("the exit leaves the cause %q", got)
	}
	r.do(t, strings.Fields("exit a/1 g=1 detail=another"))
	if got := r.s.View.Cause.Detail; got != "SIGKILL" {
		t.Errorf("the exit of another member makes it %q", got)
	}
}
