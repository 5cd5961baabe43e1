package round

import (
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
)

// exited applies the exit of a process, or the notice that a process is certain to end, which says
// no more about it. The notices and the fact may arrive in any order.
func (t *transition) exited(w events.WorkerExited) {
	t.processEnded(w)
	t.stepReported(w.Step)
	x := t.member(w.Place)
	if x == nil || w.Attempt < x.Attempt || (x.Incarnation != "" && x.Incarnation != w.Incarnation) {
		return // of an earlier or a different incarnation
	}
	if x.over() {
		t.explainExit(w)
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
			t.proposeForExit(events.CauseAt(w.CauseKind(), w.Place, rank, w.Detail), w.AgeMS)
		}
	case x.Leaving && !w.Asked:
	case w.Asked:
		// Its agent is shutting down and the scheduler will react; or it was leaving, and as the
		// last one it must ask for the round itself.
		x.State = lost
		if rank >= 0 {
			t.propose(events.CauseAt(events.CauseShrink, w.Place, rank, w.Detail), w.AgeMS)
		}
	default:
		x.State = finished
	}
}

// stepReported records a step that a process has reported, under restart recovery.
func (t *transition) stepReported(step uint64) {
	if t.restart() {
		t.ReportedStep = max(t.ReportedStep, step)
	}
}

// proposeForExit proposes the next generation because of an exit. Peers may have accused the worker
// before its agent saw the exit; the exit then replaces the accusation as the cause.
func (t *transition) proposeForExit(c events.Cause, ageMS float64) {
	t.propose(c, ageMS)
	if t.open() && t.View.Cause.Accuses(*c.Place, c.Rank) {
		t.View.Cause = c
	}
}

// explainExit gives the open round the cause that the exit shows, if its worker was reported as
// dying before.
func (t *transition) explainExit(w events.WorkerExited) {
	rank := t.rankOf(w.Place, w.Incarnation)
	if t.open() && w.Failed(!t.restart()) && t.View.Cause.Blames(w.Place, ident.Rank(rank)) {
		t.View.Cause.Detail = w.Detail
	}
}

// processStopped applies that an agent has stopped a process before its next generation. A join of
// that process received in the meantime was a late repeat and does not count.
func (t *transition) processStopped(x *Member, w events.WorkerExited, rank int) {
	x.Stopped = w.Incarnation
	switch {
	case x.State == joined && x.Incarnation == w.Incarnation:
		x.State = pending
	case rank >= 0 && !t.open() && w.Generation < t.View.Generation:
		x.State = pending
		t.propose(events.CauseAt(events.CauseWorkerLost, w.Place, rank, "it had been stopped before"), w.AgeMS)
	}
}

// respawned applies a respawn that the registry has granted.
func (t *transition) respawned(b events.JobRespawned) {
	// active, joined: the grant arrived before the exit that it answers. pending: the same for an
	// incarnation that never joined, or the worker was unresponsive and is replaced.
	x := t.member(b.Place)
	if x == nil || x.Leaving || x.State == lost || b.Dead == "" || (b.Dead != x.Incarnation && x.Incarnation != "") || b.Attempt <= x.Attempt {
		return
	}
	rank, wasMember := t.rank(x), x.State == active
	detail := fmt.Sprintf("attempt %d of %s was granted", b.Attempt, b.Place)
	t.resetMember(x, b.Attempt)
	switch {
	case wasMember:
		t.propose(events.CauseAt(events.CauseWorkerFailed, b.Place, rank, detail), 0)
	case t.restart():
		t.requestGrowth(events.CauseAt(events.CauseGrow, b.Place, -1, detail))
	}
}

// denyRespawn applies that a dead worker is not respawned, unless its node has a newer agent since:
// the denial was for the older one.
func (t *transition) denyRespawn(b events.JobRespawnDenied) {
	x := t.member(b.Place)
	if x == nil || x.State != dead || x.Incarnation != b.Dead {
		return
	}
	if x.State = respawnDenied; x.Leaving || t.Agents[b.Place.Node] < b.Dead { // ULIDs sort by age
		return
	}
	t.resetMember(x, x.Attempt+1)
	if t.restart() {
		t.requestGrowth(events.CauseAt(events.CauseGrow, b.Place, -1, "its node is back"))
	}
}

// resetMember prepares a member for its next incarnation.
func (t *transition) resetMember(x *Member, attempt int) {
	*x = Member{Place: x.Place, State: pending, Attempt: attempt, Leaving: x.Leaving}
	t.PendingAt = t.now
}

// stalled applies that no member makes a step in the sealed generation. It abandons the generation,
// even if that was done before for another reason; members that do not rejoin in time are removed.
// Under restart recovery the agents stop all processes, including those that hang.
func (t *transition) stalled(b events.JobStalled) {
	if b.Generation != t.View.Generation || t.Finishing || t.Stopping != nil {
		return // the job is over or about to be
	}
	c := events.Cause{Kind: events.CauseHang, Rank: -1, Detail: b.Detail}
	switch {
	case !t.open():
		t.propose(c, 0)
	case t.graceful(): // a planned change, which the members that hang block
		t.View.Cause = c
		t.abandon(c)
	}
	if t.restart() {
		return
	}
	for x := range t.all() {
		if x.State == active && t.rank(x) >= 0 {
			x.RejoinBy = t.now.Add(t.Spec.Elastic.RejoinWithin.D())
		}
	}
}

// publishMissing reports the members that have not rejoined when asked to, if the round cannot be
// sealed without them, so that the registry can replace them.
func (t *transition) publishMissing() {
	var places []ident.Place
	var missing []tables.Member
	for x := range t.all() {
		if !t.open() || x.State != pending {
			x.Unresponsive = false
		}
		if r := t.rank(x); x.Unresponsive && r >= 0 {
			places = append(places, x.Place)
			missing = append(missing, t.View.Members[r])
		}
	}
	if slices.Equal(places, t.ReportedMissing) {
		return
	}
	t.ReportedMissing = places
	if t.open() { // otherwise the seal lists the members
		t.publish(events.RoundMissed{Job: t.View.Job, Proposed: t.View.Proposed, Missing: missing})
	}
}

// resetLimitReached reports whether a change that only adds members must not be made because it
// would exceed the reset limit; the job then trains on without them. A change that also lets
// members leave is always made.
func (t *transition) resetLimitReached(c events.Cause) bool {
	limit := t.Spec.Elastic.ResetLimit
	return limit != nil && c.Kind == events.CauseGrow && int(t.View.Generation) > *limit &&
		!slices.ContainsFunc(t.Members, func(x Member) bool { return x.Leaving })
}
