package round

import (
	"time"

	"github.com/regroup-io/regroup/events"
)

// provenAfter is how long a generation under restart recovery must have worked to count as progress.
const provenAfter = time.Minute

// noProgress counts the generations in a row, up to the sealed one, that were lost to a fault and made no progress. With
// in-process recovery progress is a commit of a later step than its members came with; what other programs save nobody
// knows, so it is how long they worked. A planned change neither counts nor ends the row.
func (t *turn) noProgress(o outlook) int {
	switch {
	case t.View.Generation == 0:
		return 0
	case t.restart():
		if t.NoticeAt.Sub(t.SealedAt) >= provenAfter {
			return 0
		}
	default:
		for i := range t.Seats {
			if x := &t.Seats[i]; t.ready(x, o) && x.Commit.Step > t.Committed {
				return 0
			}
		}
	}
	if t.View.Cause.Kind.Planned() {
		return t.View.NoProgress
	}
	return t.View.NoProgress + 1
}

// backsOff tells whether the seal of a round for which everybody is there must wait, and notes until when. One that leaves
// out a node which others cannot reach is no repeat of what went wrong.
func (t *turn) backsOff(o outlook) bool {
	if k := t.View.Cause.Kind; k.Planned() || k == events.CauseLink {
		return false
	}
	by := t.NoticeAt.Add(t.Spec.Elastic.BackOff(t.noProgress(o)))
	if !t.now.Before(by) {
		return false
	}
	t.BackOff = by
	return true
}

// newestStep is the newest one that members hold a commit of.
func newestStep(members events.MemberTable) (step uint64) {
	for i := range members {
		step = max(step, members[i].Commit.Step)
	}
	return step
}
