package round

import (
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/events"
)

// exited takes in the end of a process, by notice or by fact, in whatever order they come.
func (t *transition) exited(w events.WorkerExited) {
	x := t.member(w.Place)
	if x == nil || w.Attempt < x.Attempt || (x.Incarnation != "" && x.Incarnation != w.Incarnation) {
		return // of a life that is over already, or another one's
	}
	switch x.State {
	case dead, respawnDenied, lost, finished:
		return
	}
	rank := t.rankOf(x.Place, w.Incarnation)
	if t.restart() && w.Asked {
		t.processStopped(x, w, rank)
		return
	}
	x.Incarnation = w.Incarnation
	if x.Leaving {
		t.removeMembers(func(y *Member) bool { return y.Place == w.Place })
		x = &Member{Leaving: true}
	}
	switch {
	case w.Failed(!t.restart()):
		x.State = dead
		if rank >= 0 {
			t.proposeForExit(events.Cause{Kind: events.CauseWorkerFailed, Place: &w.Place, Node: w.Place.Node, Rank: rank, Detail: w.Detail}, w.AgeMS)
		}
	case x.Leaving && !w.Asked:
	case w.Asked:
		x.State = lost // its agent is going; the scheduler follows. Or it was leaving: with the last one nobody else asks for a round
		if rank >= 0 {
			t.propose(events.Cause{Kind: events.CauseShrink, Place: &w.Place, Node: w.Place.Node, Rank: rank, Detail: w.Detail}, w.AgeMS)
		}
	default:
		x.State = finished
	}
}

// proposeForExit proposes the next generation because of an exit. If peers have accused that worker
// before, which may be sooner than its agent knows, it says how their accusation came about.
func (t *transition) proposeForExit(c events.Cause, ageMS float64) {
	t.propose(c, ageMS)
	if t.open() && t.View.Cause.Accuses(*c.Place, c.Rank) {
		t.View.Cause = c
	}
}

// processStopped takes in that an agent has stopped a process for its next generation. A join of
// that process which was taken since was a late repeat: it is not in the next generation.
func (t *transition) processStopped(x *Member, w events.WorkerExited, rank int) {
	x.Stopped = w.Incarnation
	switch {
	case x.State == joined && x.Incarnation == w.Incarnation:
		x.State = pending
	case rank >= 0 && !t.open() && w.Generation < t.View.Generation:
		x.State = pending
		t.propose(events.Cause{
			Kind: events.CauseWorkerLost, Place: &w.Place, Node: w.Place.Node, Rank: rank, Detail: "it had been stopped before",
		}, w.AgeMS)
	}
}

// respawned takes in the registry's grant of another life.
func (t *transition) respawned(b events.JobRespawned) {
	x := t.member(b.Place)
	if x == nil || x.Leaving {
		return
	}
	switch x.State {
	case dead, respawnDenied, finished, active, joined, pending:
		// member, joined: the verdict came before the exit that it answers; coming: so it did, of a
		// life that never joined, or it was silent for too long and is replaced
		if b.Dead == "" || (b.Dead != x.Incarnation && x.Incarnation != "") || b.Attempt <= x.Attempt {
			return
		}
	default:
		return
	}
	rank := t.rankOf(x.Place, x.Incarnation)
	wasMember := x.State == active
	detail := fmt.Sprintf("attempt %d of %s was granted", b.Attempt, b.Place)
	t.resetMember(x, b.Attempt)
	switch {
	case wasMember:
		t.propose(events.Cause{Kind: events.CauseWorkerFailed, Place: &b.Place, Node: b.Place.Node, Rank: rank, Detail: detail}, 0)
	case t.restart() && !t.open():
		t.requestGrowth(events.Cause{Kind: events.CauseGrow, Place: &b.Place, Node: b.Place.Node, Rank: -1, Detail: detail})
	}
}

// denyRespawn takes in that a dead worker's place stays empty, unless the place has passed to a
// newer agent since: the blame was for the older one.
func (t *transition) denyRespawn(b events.JobRespawnDenied) {
	x := t.member(b.Place)
	if x == nil || x.State != dead || x.Incarnation != b.Dead {
		return
	}
	if x.State = respawnDenied; x.Leaving || t.Agents[b.Place.Node] < b.Dead { // ULIDs sort by age
		return
	}
	t.resetMember(x, x.Attempt+1)
	if t.restart() && !t.open() {
		t.requestGrowth(events.Cause{Kind: events.CauseGrow, Place: &b.Place, Node: b.Place.Node, Rank: -1, Detail: "its node is back"})
	}
}

// resetMember empties a seat for the next life.
func (t *transition) resetMember(x *Member, attempt int) {
	*x = Member{Place: x.Place, State: pending, Attempt: attempt, Leaving: x.Leaving}
	t.PendingAt = t.now
}

// stalled takes in that nobody makes a step in the sealed generation: it is abandoned, and who does
// not come back in time is out; also if it was abandoned before, for another reason. Restarted
// groups are stopped by their agents, the hung with them.
func (t *transition) stalled(b events.JobStalled) {
	if b.Generation != t.View.Generation || t.Finishing || t.Stopping != nil {
		return // it is over, or about to be
	}
	c := events.Cause{Kind: events.CauseHang, Rank: -1, Detail: b.Detail}
	switch {
	case !t.open():
		t.propose(c, 0)
	case t.graceful(): // a planned change, which those who hang hold up
		t.View.Cause = c
		t.abandon(c)
	}
	if t.restart() {
		return
	}
	for i := range t.Members {
		if x := &t.Members[i]; x.State == active && t.rankOf(x.Place, x.Incarnation) >= 0 {
			x.RejoinBy = t.now.Add(t.Spec.Elastic.RejoinWithin.D())
		}
	}
}

// publishMissing says who is asked back in vain, if the round cannot be sealed without them, so
// that the registry may replace them.
func (t *transition) publishMissing() {
	var places []events.Place
	var missing []events.Member
	for i := range t.Members {
		x := &t.Members[i]
		if !t.open() || x.State != pending {
			x.Unresponsive = false
		}
		if r := t.rankOf(x.Place, x.Incarnation); x.Unresponsive && r >= 0 {
			places = append(places, x.Place)
			missing = append(missing, t.View.Members[r])
		}
	}
	if slices.Equal(places, t.ReportedMissing) {
		return
	}
	t.ReportedMissing = places
	if t.open() { // else its seal says who is in
		t.publish(events.RoundMissed{Job: t.View.Job, Proposed: t.View.Proposed, Missing: missing})
	}
}

// resetLimitReached tells whether a change that only takes newcomers in is not made because it
// would be one regroup too many: the job trains on without them. One that lets members leave is
// asked for all the same.
func (t *transition) resetLimitReached(c events.Cause) bool {
	limit := t.Spec.Elastic.ResetLimit
	return limit != nil && c.Kind == events.CauseGrow && int(t.View.Generation) > *limit &&
		!slices.ContainsFunc(t.Members, func(x Member) bool { return x.Leaving })
}
