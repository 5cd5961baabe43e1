package round

import (
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

func (t *transition) placement(p events.PlacementSet) {
	if t.in.Number != 0 && t.in.Number <= t.Placement {
		return // an older placement, delivered late
	}
	t.Placement = max(t.Placement, t.in.Number)
	t.place(p)
}

func (t *transition) place(p events.PlacementSet) {
	t.Workers, t.HostOrder = p.Workers, p.Hosts
	if t.Nonce == "" {
		t.Nonce, t.Spec = t.in.Nonce, p.Spec
	}
	t.noteAgents(p)
	for _, place := range p.Places {
		x := t.member(place)
		if x == nil {
			t.addMember(place)
			t.PendingAt = t.now
			continue
		}
		// Revoked and granted again: the previous worker does not return. What one has finished
		// counts, unless all start again.
		if x.Leaving && x.over() && (x.State != finished || t.restart() && t.open()) {
			t.resetMember(x, x.Attempt+1)
		}
		x.Leaving = false
	}
	kept := make(map[ident.Place]bool, len(p.Places))
	for _, place := range p.Places {
		kept[place] = true
	}
	var shrunk *Member // a copy, because removeMembers moves members
	for x := range t.all() {
		if kept[x.Place] || lostWith(x, p) {
			continue
		}
		x.Leaving = true
		if t.rank(x) >= 0 {
			leaving := *x
			shrunk = &leaving
		}
	}
	for _, n := range p.LostNodes {
		t.loseNode(n, events.CauseNodeLost, "node "+string(n)+" is lost", func(x *Member) bool { return !kept[x.Place] && lostWith(x, p) }, false)
	}
	// Members without a rank are removed now; those of the sealed generation stay until the
	// generation without them is sealed.
	t.removeMembers(func(x *Member) bool {
		return !kept[x.Place] && (x.State == lost || t.rank(x) < 0)
	})
	switch {
	case t.View.Generation == 0:
		t.propose(events.Cause{Kind: events.CauseStart, Rank: -1, Detail: p.Reason}, 0)
	case shrunk != nil && (t.restart() || t.survivors() >= t.Workers.Min):
		// Otherwise the job moves: leaving members train on until their replacements are synced,
		// whose join then requests the change.
		t.requestChange(events.CauseAt(events.CauseShrink, shrunk.Place, t.rank(shrunk), p.Reason))
	case t.short(): // scaled to more than there is: below its min a job waits
		t.requestChange(events.Cause{Kind: events.CauseGrow, Rank: -1, Detail: p.Reason})
	case t.restart() && t.hasNewcomer():
		t.requestGrowth(events.Cause{Kind: events.CauseGrow, Rank: -1, Detail: p.Reason})
	}
}

// lostWith reports whether a member was lost with its node, according to a placement. A worker of a
// newer agent than the one that was lost has only lost its place.
func lostWith(x *Member, p events.PlacementSet) bool {
	i := slices.Index(p.LostNodes, x.Place.Node)
	return i >= 0 && (i >= len(p.LostAgents) || x.Agent <= p.LostAgents[i])
}

func (t *transition) hasNewcomer() bool {
	return slices.ContainsFunc(t.Members, func(x Member) bool { return (x.State == pending || x.State == joined && x.Unsynced) && !x.Leaving })
}

// short reports whether the job cannot have as many workers as it needs. One whose newcomers have
// places trains on until they are ready, if it recovers in process.
func (t *transition) short() bool {
	n := len(t.View.Members)
	if !t.restart() {
		n = t.count(func(x *Member) bool { return !x.Leaving && (x.State == dead || !x.over()) })
	}
	return n < t.Workers.Min
}

// requestChange requests a planned regroup: in-process at the next commit, by restart now.
func (t *transition) requestChange(c events.Cause) {
	if t.open() || t.resetLimitReached(c) {
		return
	}
	if t.restart() {
		t.propose(c, 0)
		return
	}
	if !t.Planned {
		before := t.View.Cause
		t.Planned, t.PreviousCause = true, &before
	}
	t.View.Cause = c
}

// revertChange cancels a planned change whose reason is gone before the members have left: the
// newcomer has died or lost its place, the leaving members have theirs back, or the members are
// enough again.
func (t *transition) revertChange() {
	if !t.Planned || t.open() || t.Stopping != nil || t.restart() || t.short() {
		return
	}
	for x := range t.all() {
		if t.admissible(x) && t.grows() || (x.Leaving && t.rank(x) >= 0) {
			return
		}
	}
	t.Planned = false
	if t.PreviousCause != nil {
		t.View.Cause, t.PreviousCause = *t.PreviousCause, nil
	}
}

// Growth is a planned change that adds newcomers, while it waits for others that arrive at about
// the same time: several nodes that arrive together cost one regroup. A loss never waits for it.
type Growth struct {
	By    time.Time    `json:"by"`
	Cause events.Cause `json:"cause"`
}

// requestGrowth requests the planned change that adds newcomers: at once if no other is about to be
// ready, otherwise after elastic.settle. Horovod has no such window: ten hosts that arrive together
// cost ten resets.
func (t *transition) requestGrowth(c events.Cause) {
	if !t.open() && !t.Planned && t.Growth == nil && t.grows() { // a newcomer that arrives while a change is planned may still be part of it
		t.Growth = &Growth{By: t.now.Add(t.Spec.Elastic.Settle.D()), Cause: c}
	}
}

// applyGrowth requests the change once the newcomers have waited long enough.
func (t *transition) applyGrowth() {
	switch {
	case t.Growth == nil:
		return
	case t.Finishing || t.Stopping != nil:
		t.Growth = nil
		return
	case t.now.Before(t.Growth.By) && t.othersPending():
		return
	case !t.restart() && t.available(t.stateHolder()) < t.Workers.Min && !t.short():
		t.Growth = nil // still others are needed, whose joins request it again
		return
	}
	c := t.Growth.Cause
	t.Growth = nil
	t.requestChange(c)
}

// othersPending reports whether more newcomers may soon be ready. One that is late by a last call
// is not waited for. Under restart recovery newcomers join only once a round is open, and more
// places may be on their way.
func (t *transition) othersPending() bool {
	if t.restart() {
		return true
	}
	return t.now.Before(t.PendingAt.Add(t.Spec.Elastic.LastCall.D())) && t.hasNewcomer()
}

// noteAgents records the agents that the places are given on: the loss of an older one may be
// delivered later, and must not concern members that nobody has joined for yet.
func (t *transition) noteAgents(p events.PlacementSet) {
	node := 0
	for i, place := range p.Places { // sorted
		if i > 0 && p.Places[i-1].Node == place.Node {
			continue
		}
		if node < len(p.Agents) && p.Agents[node] > t.Agents[place.Node] {
			put(&t.Agents, place.Node, p.Agents[node])
		}
		node++
	}
}
