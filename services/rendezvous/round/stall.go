package round

import (
	"slices"

	"github.com/regroup-io/regroup/events"
)

// stalled takes in that nobody makes a step in the sealed generation: it is abandoned, and who does not come back in time is
// out; also if it was abandoned before, for another reason. Restarted groups are stopped by their agents, the hung with them.
func (t *turn) stalled(b events.JobStalled) {
	if b.Generation != t.View.Generation || t.Finishing || t.Stopping != nil {
		return // it is over, or about to be
	}
	c := events.Cause{Kind: events.CauseHang, Rank: -1, Detail: b.Detail}
	switch {
	case !t.open():
		t.propose(c, 0)
	case t.gentle(): // a planned change, which those who hang hold up
		t.View.Cause = c
		t.abandon(c)
	}
	if t.restart() {
		return
	}
	for i := range t.Seats {
		if x := &t.Seats[i]; x.State == member && t.rankOf(x.Place, x.Incarnation) >= 0 {
			x.Accused = t.now.Add(t.Spec.Elastic.RejoinWithin.D())
		}
	}
}

// tellMissed says who is asked back in vain, if the round cannot be sealed without them, so that the registry may replace them.
func (t *turn) tellMissed() {
	var places []events.Place
	var missing []events.Member
	for i := range t.Seats {
		x := &t.Seats[i]
		if !t.open() || x.State != coming {
			x.Silent = false
		}
		if r := t.rankOf(x.Place, x.Incarnation); x.Silent && r >= 0 {
			places = append(places, x.Place)
			missing = append(missing, t.View.Members[r])
		}
	}
	if slices.Equal(places, t.Asked) {
		return
	}
	t.Asked = places
	if t.open() { // else its seal says who is in
		t.tell(events.RoundMissed{Job: t.View.Job, Proposed: t.View.Proposed, Missing: missing})
	}
}

// spent tells whether a change that only takes newcomers in is not made because it would be one regroup too many: the
// job trains on without them. One that lets members leave is asked for all the same.
func (t *turn) spent(c events.Cause) bool {
	limit := t.Spec.Elastic.ResetLimit
	return limit != nil && c.Kind == events.CauseGrow && int(t.View.Generation) > *limit &&
		!slices.ContainsFunc(t.Seats, func(x Seat) bool { return x.Leaving })
}
