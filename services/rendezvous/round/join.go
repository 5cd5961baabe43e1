package round

import (
	"fmt"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
)

// join applies a worker's request to be in the next generation. It is idempotent.
func (t *transition) join(j events.MemberJoin) (events.MemberWaiting, error) {
	reply := events.MemberWaiting{Job: t.View.Job}
	x := t.member(j.Place)
	switch {
	case t.Placement == 0 && t.Nonce == "":
		return reply, errcode.Errorf(errcode.NotFound, "job %s has no placement yet", t.View.Job)
	case t.Finishing || t.Stopping != nil:
		reply.Over = true
		return reply, nil
	case x == nil:
		reply.Removed = true
		return reply, nil
	case j.Attempt != x.Attempt:
		return reply, errcode.Errorf(errcode.Fenced, "%s is at attempt %d, not %d", j.Place, x.Attempt, j.Attempt)
	case j.Left > t.View.Generation:
		return reply, errcode.Errorf(errcode.Invalid, "%s says it left %s, the newest is %s", j.Place, j.Left, t.View.Generation)
	case x.Incarnation != "" && j.Incarnation < x.Incarnation:
		return reply, errcode.Errorf(errcode.Fenced, "%s has a newer incarnation than %s", j.Place, j.Incarnation)
	case j.Incarnation == x.Stopped:
		return reply, errcode.Errorf(errcode.Fenced, "incarnation %s of %s was stopped", j.Incarnation, j.Place)
	case x.Incarnation == j.Incarnation && x.over():
		return reply, errcode.Errorf(errcode.Fenced, "incarnation %s of %s is over (%s)", j.Incarnation, j.Place, x.State)
	case x.State == lost || x.State == respawnDenied:
		return reply, errcode.Errorf(errcode.Fenced, "%s is %s", j.Place, x.State)
	}
	if x.Incarnation == j.Incarnation && x.Commit.Newer(j.Commit) {
		reply.Proposed = t.View.Generation + 1 // a late repeat: the worker has joined again since, with its current commit
		return reply, nil
	}
	rank := t.rankOf(j.Place, j.Incarnation)
	if (!t.open() || t.sealedIsGood()) && rank >= 0 && j.Left < t.View.Generation {
		// It is sealed in and does not know it: its launch was lost, or this is a late repeat.
		reply.Proposed, reply.Sealed = t.View.Generation, true
		t.republish(j.Place.Node)
		return reply, nil
	}
	t.processReplaced(j)
	t.accuse(j)
	t.suspectLink(j)
	t.openFor(j, x, rank)
	if x = t.member(j.Place); x.Leaving && rank >= 0 && !t.needsStateHolder() {
		reply.Removed = true
		t.removeMembers(func(y *Member) bool { return y.Place == j.Place })
		return reply, nil
	}
	// A late repeat does not make a synced member unsynced.
	x.Unsynced = j.Unsynced && rank < 0 && !(x.State == joined && x.Incarnation == j.Incarnation && !x.Unsynced)
	x.State, x.Incarnation, x.Agent = joined, j.Incarnation, j.Agent
	x.Address, x.PID, x.Commit = j.Address, j.PID, j.Commit
	x.RejoinBy = zeroTime
	if !x.Unsynced && !t.linkExcluded(x) {
		t.requestGrowth(events.CauseAt(events.CauseGrow, j.Place, -1, fmt.Sprintf("%s is ready", j.Place)))
	}
	reply.Proposed = t.View.Generation + 1
	return reply, nil
}

func (t *transition) joins(all events.MemberJoins) {
	answers := make([]events.MemberAnswer, len(all.Joins))
	for i, j := range all.Joins {
		if t.closed() {
			answers[i].Job, answers[i].Over = t.View.Job, true
			continue
		}
		reply, err := t.join(j)
		if err != nil {
			answers[i].Refused, answers[i].Reason = errcode.Of(err), err.Error()
			continue
		}
		answers[i].MemberWaiting = reply
	}
	t.d.Reply = events.MemberAnswers{Answers: answers}
}

// sealedIsGood reports whether the sealed generation is known to have made a step. All its members
// then have their launch, and a join from before it is a late repeat. Until then a join may come
// from a member whose launch was replaced before it arrived.
func (t *transition) sealedIsGood() bool {
	return !t.restart() && t.View.Generation > 0 && t.LastGood == t.View.Generation
}

// openFor opens the next generation if this join implies that the sealed one is over.
func (t *transition) openFor(j events.MemberJoin, x *Member, rank int) {
	if t.open() || t.View.Generation == 0 {
		return
	}
	switch {
	case rank >= 0 && j.Planned && !t.restart():
		c := t.View.Cause
		if !t.Planned { // it was reverted after this member, and all others at the same commit, had left
			c = events.CauseAt(events.CauseGrow, j.Place, rank, "a planned change was undone too late")
			t.Planned = true
		}
		t.propose(c, 0)
	case rank >= 0:
		t.propose(t.accusation(j), j.NoticeMS)
	case x.State == active:
		// A newer incarnation joins in its place: it has ended without an exit fact.
		t.propose(events.CauseAt(events.CauseWorkerLost, j.Place, t.rank(x), "was replaced by a newer incarnation"), j.NoticeMS)
	}
}

// accusation returns the cause that a member gives for leaving its generation.
func (t *transition) accusation(j events.MemberJoin) events.Cause {
	for _, r := range j.Accused {
		if r >= 0 && r < len(t.View.Members) {
			return events.CauseAt(events.CauseWorkerLost, t.View.Members[r].Place, r, fmt.Sprintf("%s lost its connection to rank %d", j.Place, r))
		}
	}
	return events.CauseAt(events.CauseWorkerLost, j.Place, t.rankOf(j.Place, j.Incarnation), fmt.Sprintf("%s left its generation", j.Place))
}

// accuse gives accused members time to rejoin: an accusation alone removes no member.
func (t *transition) accuse(j events.MemberJoin) {
	if j.Left != t.View.Generation {
		return
	}
	for _, r := range j.Accused {
		if a := t.memberOfRank(r); a != nil && a.State == active && a.RejoinBy.IsZero() && a.Place != j.Place {
			a.RejoinBy = t.now.Add(t.Spec.Elastic.RejoinWithin.D())
		}
	}
}

// expireAccused stops waiting for accused members that have not rejoined. They are not in the next
// generation and may join a later one as newcomers.
func (t *transition) expireAccused() {
	for x := range t.all() {
		if x.State == active && !x.RejoinBy.IsZero() && !t.now.Before(x.RejoinBy) {
			x.State, x.RejoinBy, x.Unresponsive = pending, zeroTime, true
		}
	}
}

func (t *transition) peers(q events.PeersQuery) (events.PeersAnswer, error) {
	a := events.PeersAnswer{Addresses: map[int]string{}}
	if q.Generation != t.View.Generation {
		return a, errcode.Errorf(errcode.Fenced, "%s is over or unknown, the newest is %s", q.Generation, t.View.Generation)
	}
	for _, r := range q.Ranks {
		if n := len(t.View.Members) + len(t.Spares); r < 0 || r >= n {
			return a, errcode.Errorf(errcode.NotFound, "%s has ranks 0 to %d, not %d", q.Generation, n-1, r)
		}
		a.Addresses[r] = t.address(r)
	}
	return a, nil
}
