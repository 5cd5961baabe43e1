package job_test

import (
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// TestExitExplainsWhatItsNoticeBegan: agents report a worker as dying before it has ended, so the
// next generation may begin, and even make steps, before the exit says why.
func TestExitExplainsWhatItsNoticeBegan(t *testing.T) {
	t.Parallel()
	const begin = "submit workers=2:3 / place n=1 a/0 b/0 c/0 / seal 1 a/0=w1 b/0=w2 c/0=w3 / ready a/0=w1 g=1 rank=0 step=1 / "
	for name, history := range map[string]string{
		"the incident is over": begin + "open 2 cause=worker-lost at=b/0 rank=1 / seal 2 from=1 cause=worker-failed at=b/0 rank=1 how=it_is_ending a/0=w1 c/0=w3 / " +
			"ready a/0=w1 g=2 rank=0 step=2 survivor / exit b/0=w2 g=1 code=1 how=ValueError",
		"the incident is open": begin + "open 2 cause=worker-failed at=b/0 rank=1 how=it_is_ending / seal 2 from=1 cause=worker-failed at=b/0 rank=1 how=it_is_ending a/0=w1 c/0=w3 / " +
			"exit b/0=w2 g=1 code=1 how=ValueError / ready a/0=w1 g=2 rank=0 step=2 survivor",
		"another exit follows": begin + "open 2 cause=worker-failed at=b/0 rank=1 how=it_is_ending / seal 2 from=1 cause=worker-failed at=b/0 rank=1 how=it_is_ending a/0=w1 c/0=w3 / " +
			"ready a/0=w1 g=2 rank=0 step=2 survivor / exit b/0=w2 g=1 code=1 how=ValueError / exit c/0=w3 g=2 code=1 how=another",
	} {
		w := newWorld()
		for input := range strings.SplitSeq(history, " / ") {
			body, number := parse(t, strings.Fields(input))
			w.step(t, body, number)
		}
		want := events.CauseAt(events.CauseWorkerFailed, ident.Place{Node: "b"}, 1, "ValueError")
		v := w.s.View
		if len(v.Incidents) == 0 || !same(v.Incidents[0].Cause, want) {
			t.Errorf("%s: incidents %+v, want the cause %+v", name, v.Incidents, want)
		}
		if got := v.Generations[1].Cause; !same(got, want) {
			t.Errorf("%s: generation cause %+v, want %+v", name, got, want)
		}
	}
}

func same(a, b events.Cause) bool {
	return a.Blames(*b.Place, b.Rank) && a.Detail == b.Detail
}
