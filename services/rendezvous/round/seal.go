package round

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/events/tracing"
)

var zeroTime time.Time

// waitSet determines, together with a member's own state, whether the open round waits for it.
type waitSet struct {
	stateHolder *Member
	newcomers   bool
}

// waitSet returns the members that the open round waits for. While enough survivors remain,
// respawned and new workers prefetch the state and join at a commit boundary. Groups under restart
// recovery start together anyway, so the round waits for a granted respawn: one new generation
// instead of two.
func (t *transition) waitSet() waitSet {
	k := t.stateHolder()
	return waitSet{k, t.restart() || t.View.Generation == 0 || t.available(k) < t.Workers.Min || (k == nil && t.survivors() == 0)}
}

// awaited reports whether the open round waits for a member.
func (t *transition) awaited(x *Member, o waitSet) bool {
	if x.Leaving {
		return x == o.stateHolder
	}
	if t.linkExcluded(x) {
		return false
	}
	switch x.State {
	case joined:
		return !x.Unsynced || o.newcomers
	case active:
		return true
	case pending:
		return o.newcomers
	case dead:
		return t.restart() // until the registry has decided
	}
	return false
}

// ready reports whether a joined member is part of the generation that is sealed now. A member that
// is still fetching the state is not, unless the round waits for newcomers: the others would have
// to wait for its transfer.
func (t *transition) ready(x *Member, o waitSet) bool {
	return x.State == joined && !t.linkExcluded(x) && (!x.Leaving || x == o.stateHolder) && (!x.Unsynced || o.newcomers)
}

// survivors counts the members of the sealed generation that are not known to be gone.
func (t *transition) survivors() int {
	return t.count(func(x *Member) bool { return t.survives(x) && !t.linkExcluded(x) })
}

// survives reports whether a member of the sealed generation is not known to be gone, nor leaving.
func (t *transition) survives(x *Member) bool {
	return (x.State == active || x.State == joined) && !x.Leaving && t.rank(x) >= 0
}

// available counts the members that can be in the next generation without starting a process:
// survivors, joined members and the state holder.
func (t *transition) available(holder *Member) int {
	return t.count(func(x *Member) bool {
		if x.Leaving || t.linkExcluded(x) {
			return x.Leaving && x == holder
		}
		return x.State == joined && !x.Unsynced || x.State == active && t.rank(x) >= 0
	})
}

// needsStateHolder reports whether all members that hold the job's state are leaving. One of them
// then stays until the newcomers have received the state, which a planned change would otherwise
// lose.
func (t *transition) needsStateHolder() bool {
	return !t.restart() && t.LastGood > 0 && t.survivors() == 0
}

// stateHolder returns the leaving member that must hand over the state: that of the lowest rank.
func (t *transition) stateHolder() *Member {
	if !t.needsStateHolder() {
		return nil
	}
	var best *Member
	for x := range t.all() {
		if !x.Leaving || (x.State != active && x.State != joined) {
			continue
		}
		if r := t.rank(x); r >= 0 && (best == nil || r < t.rank(best)) {
			best = x
		}
	}
	return best
}

// releaseStateHolder requests the change without the state holder once a generation makes steps in
// which enough other members have the state.
func (t *transition) releaseStateHolder() {
	if t.open() || t.LastGood != t.View.Generation || t.survivors() < max(t.Workers.Min, 1) {
		return
	}
	for x := range t.all() {
		if x.Leaving && x.State == active {
			t.requestChange(events.CauseAt(events.CauseShrink, x.Place, t.rank(x), "has handed the state over"))
			return
		}
	}
}

func (t *transition) awaitedPlaces() ident.Places {
	o := t.waitSet()
	return t.places(func(x *Member) bool { return t.awaited(x, o) })
}

// trySeal seals the open round if all awaited members have joined, or min after the last call.
func (t *transition) trySeal() {
	if !t.open() || t.Stopping != nil {
		return
	}
	here, missing, o := 0, 0, t.waitSet()
	for x := range t.all() {
		switch {
		case t.ready(x, o):
			here++
		case t.awaited(x, o):
			missing++
		}
	}
	t.BackOff, t.View.EndingNodes = zeroTime, nil
	switch {
	case t.whole(here) < max(t.Workers.Min, 1):
		t.View.State, t.LastCall = events.RoundStateOpen, zeroTime // falling below min cancels the last call
	case missing > 0 && t.LastCall.IsZero():
		t.View.State, t.LastCall = events.RoundStateSettling, t.now.Add(t.Spec.Elastic.LastCall.D())
	case missing > 0 && t.now.Before(t.LastCall):
	case t.processesRun(), t.backingOff(o):
		t.View.State = events.RoundStateSettling
	default:
		t.seal()
	}
}

func (t *transition) seal() {
	g, o := t.View.Proposed, t.waitSet()
	places := t.places(func(x *Member) bool { return t.ready(x, o) })
	for _, p := range places {
		if _, ok := t.Seniority[p.Node]; !ok {
			put(&t.Seniority, p.Node, g)
		}
	}
	if !t.View.Cause.Kind.Planned() {
		t.Restarts++
	}
	excluded := t.excludedPlaces()
	t.View.NoProgress = t.noProgress(o)
	members := t.seats(places)
	spares := t.sparesOf(places, members)
	for i := range members {
		x := t.member(members[i].Place)
		m := &members[i]
		m.Incarnation, m.Agent, m.Attempt, m.Address, m.Commit, m.PID = x.Incarnation, x.Agent, x.Attempt, x.Address, x.Commit, x.PID
		x.State, x.Unsynced = active, false
	}
	t.beginGeneration(g, members)
	t.Spares = spares
	for x := range t.all() { // unresponsive members are out; if alive they join as newcomers
		x.RejoinBy = zeroTime
		if x.State == active && t.rank(x) < 0 {
			x.State = pending
		}
	}
	// A node without members starts anew when it returns.
	maps.DeleteFunc(t.Seniority, func(n ident.NodeID, _ ident.Generation) bool {
		_, ok := t.firstRank(n)
		return !ok
	})
	t.removeMembers(func(x *Member) bool { return x.Leaving && x.State != active })
	decision, delay := events.Milliseconds(t.now.Sub(t.NoticeAt)), 0.0
	if t.DelayedIn == g {
		delay = min(decision, events.Milliseconds(t.now.Sub(t.DelayedAt)))
	}
	t.publish(events.RoundSealed{
		Job: t.View.Job, Generation: g, Members: members, Cause: t.View.Cause, From: t.LastGood,
		Spares: t.sparePlaces(), Excluded: excluded, NoticeMS: t.NoticeMS, JudgeMS: decision, BackOffMS: delay, NoProgress: t.View.NoProgress,
	})
	t.d.Spans = append(t.d.Spans, events.Span{
		Service: events.ServiceRendezvous, Name: "rendezvous " + g.String(), Parent: t.trace(),
		Self: tracing.Child(t.trace(), "rendezvous", g.String()), Start: t.NoticeAt, End: t.now,
		Attributes: map[string]string{"regroup.job.id": string(t.View.Job), "regroup.generation": g.String(), "regroup.incident.cause": string(t.View.Cause.Kind)},
	})
	if t.restart() {
		return
	}
	if t.grows() {
		t.requestGrowth(events.Cause{Kind: events.CauseGrow, Rank: -1, Detail: "a newcomer is ready"})
	}
}

// beginGeneration makes a generation the sealed one: nothing of the round before it counts any
// more, and none of its processes has ended.
func (t *transition) beginGeneration(g ident.Generation, members tables.MemberTable) {
	t.View.Generation, t.View.Proposed, t.View.State, t.View.Members, t.firstRanks = g, 0, events.RoundStateSealed, members, nil
	t.LastCall, t.BackOff, t.Planned, t.PreviousCause, t.BrokenConns = zeroTime, zeroTime, false, nil, nil
	t.LostNodes, t.EndedRanks, t.Spares = nil, nil, nil
	t.SealedAt, t.CommittedStep = t.now, newestStep(members)
	if t.restart() {
		t.CommittedStep = t.ReportedStep
	}
}

// provenAfter is how long a generation under restart recovery must run to count as progress if it
// reports no steps.
const provenAfter = time.Minute

// noProgress counts the consecutive generations, up to the sealed one, that were lost to a fault
// without progress. With in-process recovery progress is a commit of a later step than the members
// started from. What other programs save is unknown: for them it is a later step than any before
// that they report, or running time. A planned change neither counts nor ends the sequence.
func (t *transition) noProgress(o waitSet) int {
	switch {
	case t.View.Generation == 0:
		return 0
	case t.restart():
		if t.ReportedStep > t.CommittedStep || t.NoticeAt.Sub(t.SealedAt) >= provenAfter {
			return 0
		}
	default:
		for x := range t.all() {
			if t.ready(x, o) && x.Commit.Step > t.CommittedStep {
				return 0
			}
		}
	}
	if t.View.Cause.Kind.Planned() {
		return t.View.NoProgress
	}
	return t.View.NoProgress + 1
}

// backingOff reports whether the seal of a round in which all members have joined must be delayed,
// and records until when. A round that excludes a node which others cannot reach does not repeat
// the failure and is not delayed.
func (t *transition) backingOff(o waitSet) bool {
	if k := t.View.Cause.Kind; k.Planned() || k == events.CauseLink {
		return false
	}
	n := t.noProgress(o)
	wait := t.Spec.Elastic.BackOff(n)
	by := t.NoticeAt.Add(wait)
	if !t.now.Before(by) {
		return false
	}
	if t.BackOff = by; wait > 0 && t.DelayedIn != t.View.Proposed { // once for a round
		t.DelayedIn, t.DelayedAt = t.View.Proposed, t.now
		t.publish(events.RoundDelayed{
			Job: t.View.Job, Proposed: t.View.Proposed, NoProgress: n, WaitMS: events.Milliseconds(by.Sub(t.now)),
			Attempts: t.nextAttempt(),
		})
	}
	return true
}

// nextAttempt returns which attempt the next generation is. With in-process recovery, where the
// first generations without progress cost nothing, nobody knows how many there may be.
func (t *transition) nextAttempt() events.Attempts {
	a := events.Attempts{Attempt: t.Restarts + 2}
	if of := t.Spec.Failures.Attempts(); t.restart() && a.Attempt <= of {
		a.Of = of
	}
	return a
}

func newestStep(members tables.MemberTable) (step uint64) {
	for i := range members {
		step = max(step, members[i].Commit.Step)
	}
	return step
}

// assign gives ranks to places: nodes that are in the sealed generation, of which before has the
// first rank, keep their order; the others follow in the order of hosts, then by name; slots within
// a node in order; cut at limit (0 = none). Then a node that follows takes the ranks of one that is
// gone if they are enough for it, so that the members behind keep theirs: their parts of a sharded
// state stay where they are, and their groups can be used again. Rank 0 is always of a node that
// stays, if there is one: programs expect the state there.
//
// Example: of the nodes a, b, c and d b is lost and e comes. The order is a, e, c, d. If a is lost
// it is b, e, c, d; if e comes a generation later, it is a, c, d, e.
//
// Local and cross ranks are Horovod's: local_rank counts on the node, and for each local rank the
// nodes that have it form a cross group, in order.
func assign(places []ident.Place, before map[ident.NodeID]int, hosts []ident.NodeID, limit int) tables.MemberTable {
	line := map[ident.NodeID]int{}
	for i, n := range hosts {
		line[n] = i - len(hosts) // all others follow
	}
	rank := func(n ident.NodeID) int {
		if r, ok := before[n]; ok {
			return r
		}
		return math.MaxInt
	}
	order := slices.SortedFunc(slices.Values(places), func(a, b ident.Place) int {
		return cmp.Or(cmp.Compare(rank(a.Node), rank(b.Node)), cmp.Compare(line[a.Node], line[b.Node]), a.Compare(b))
	})
	if limit > 0 {
		order = order[:min(limit, len(order))]
	}
	var stay, more [][]ident.Place
	for i, p := range order {
		nodes := &stay
		if rank(p.Node) == math.MaxInt {
			nodes = &more
		}
		if i == 0 || order[i-1].Node != p.Node {
			*nodes = append(*nodes, nil)
		}
		last := &(*nodes)[len(*nodes)-1]
		*last = append(*last, p)
	}
	members := make(tables.MemberTable, 0, len(order))
	add := func(node []ident.Place) {
		for _, p := range node {
			members = append(members, tables.Member{Place: p})
		}
	}
	room := make([]int, len(stay)) // how many ranks may come before each so that nobody behind moves back
	for i, at := len(stay)-1, len(order)-count(more); i >= 0; i-- {
		at -= len(stay[i])
		room[i] = rank(stay[i][0].Node) - at
		if i < len(stay)-1 {
			room[i] = min(room[i], room[i+1])
		}
	}
	came := 0
	for i, node := range stay {
		for i > 0 {
			fits := slices.IndexFunc(more, func(n []ident.Place) bool { return came+len(n) <= room[i] })
			if fits < 0 {
				break
			}
			add(more[fits])
			came += len(more[fits])
			more = slices.Delete(more, fits, fits+1)
		}
		add(node)
	}
	for _, node := range more {
		add(node)
	}
	members.Number()
	return members
}

func count(nodes [][]ident.Place) (n int) {
	for _, node := range nodes {
		n += len(node)
	}
	return n
}
