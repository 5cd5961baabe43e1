package job

import (
	"fmt"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// noProgress charges a generation that was lost to a fault which is nobody's by name: connections that break, peers that accuse each
// other. One or two of them cost nothing, because links fail for a moment; but a job that loses each of its generations
// before its next commit would do so for ever. With other programs each process that dies is charged.
func (t *turn) noProgress(b events.RoundSealed, over events.Generation) {
	t.NoProgress = b.NoProgress
	if over == 0 || b.NoProgress <= spec.FreeRetries || b.Cause.Kind.Planned() || b.Cause.Kind == events.CauseLink || !t.inProcess() || !t.owes(over) {
		return
	}
	detail := fmt.Sprintf("%d generations in a row were lost before they could commit a step after %d", b.NoProgress, t.Commit.Step)
	if why := b.Cause.Detail; why != "" {
		detail += "; the last one: " + why
	}
	t.pay(events.CountedFailure{At: t.now, Generation: over, Rank: -1, Step: t.Commit.Step, Kind: events.FailureNoProgress, Detail: detail}, detail)
}

// standsStill adds the time that the generation which is over now has spent without a good step: health.hang counts it, so that
// generations which are lost one after the other before they make a step do not each begin to wait anew.
func (t *turn) standsStill() {
	g := t.View.Generation
	if g == 0 || t.Broken >= g || t.LastGood >= g {
		return
	}
	if v := t.generation(g); v != nil {
		t.View.TimeWithoutStep += spec.Duration(max(0, t.now.Sub(v.Sealed)))
	}
}
