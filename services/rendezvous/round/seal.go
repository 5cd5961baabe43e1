package round

import (
	"cmp"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
)

var zeroTime time.Time

// waitSet is what decides for whom the open round waits, beside the seat itself.
type waitSet struct {
	stateHolder *Member
	newcomers   bool // newcomers are waited for
}

// With survivors enough, a respawned or new worker warms up aside and is taken in at a commit
// boundary. Restarted groups start together anyway, so a granted respawn is waited for: one new
// generation, not two.
func (t *transition) waitSet() waitSet {
	k := t.stateHolder()
	return waitSet{k, t.restart() || t.View.Generation == 0 || t.available(k) < t.Workers.Min || (k == nil && t.survivors() == 0)}
}

// awaited tells whether the open round waits for a seat.
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
		return t.restart() // until the verdict
	}
	return false
}

// ready tells whether a seat that has joined is in the generation that is sealed now. Who fetches
// the state aside is not, unless newcomers are waited for: the others would have to wait until it
// has the state.
func (t *transition) ready(x *Member, o waitSet) bool {
	return x.State == joined && !t.linkExcluded(x) && (!x.Leaving || x == o.stateHolder) && (!x.Unsynced || o.newcomers)
}

// survivors counts the members of the sealed generation that are not known to be gone.
func (t *transition) survivors() int {
	n := 0
	for i := range t.Members {
		x := &t.Members[i]
		if (x.State == active || x.State == joined) && !x.Leaving && !t.linkExcluded(x) && t.rankOf(x.Place, x.Incarnation) >= 0 {
			n++
		}
	}
	return n
}

// available counts who can be in the next generation without anybody starting: survivors, those who
// have joined, the keeper.
func (t *transition) available(keeper *Member) int {
	n := 0
	for i := range t.Members {
		x := &t.Members[i]
		switch {
		case x.Leaving:
			if x == keeper {
				n++
			}
		case t.linkExcluded(x):
		case x.State == joined && !x.Unsynced, x.State == active && t.rankOf(x.Place, x.Incarnation) >= 0:
			n++
		}
	}
	return n
}

// needsStateHolder tells whether everybody who holds the job's state is leaving: then one of them
// stays until the newcomers have received it, or the state would be lost in a planned change.
func (t *transition) needsStateHolder() bool {
	return !t.restart() && t.LastGood > 0 && t.survivors() == 0
}

// stateHolder is the leaving member that hands the state over, if one is needed: the one with the
// lowest rank that is left.
func (t *transition) stateHolder() *Member {
	if !t.needsStateHolder() {
		return nil
	}
	var best *Member
	for i := range t.Members {
		x := &t.Members[i]
		if !x.Leaving || (x.State != active && x.State != joined) {
			continue
		}
		r := t.rankOf(x.Place, x.Incarnation)
		if r >= 0 && (best == nil || r < t.rankOf(best.Place, best.Incarnation)) {
			best = x
		}
	}
	return best
}

// releaseStateHolder asks for the change without the keeper, once a generation makes steps in which
// enough others have the state from it. Without them nobody would have it.
func (t *transition) releaseStateHolder() {
	if t.open() || t.LastGood != t.View.Generation || t.survivors() < max(t.Workers.Min, 1) {
		return
	}
	for i := range t.Members {
		if x := &t.Members[i]; x.Leaving && x.State == active {
			place := x.Place
			t.requestChange(events.Cause{
				Kind: events.CauseShrink, Place: &place, Node: place.Node, Rank: t.rankOf(place, x.Incarnation),
				Detail: "has handed the state over",
			})
			return
		}
	}
}

func (t *transition) awaitedPlaces() events.Places {
	var out events.Places
	o := t.waitSet()
	for i := range t.Members {
		if t.awaited(&t.Members[i], o) {
			out = append(out, t.Members[i].Place)
		}
	}
	return out
}

// trySeal seals the open round if everybody expected has joined, or if at least min have and the
// last call is over.
func (t *transition) trySeal() {
	if !t.open() || t.Stopping != nil {
		return
	}
	here, missing, o := 0, 0, t.waitSet()
	for i := range t.Members {
		x := &t.Members[i]
		switch {
		case t.ready(x, o):
			here++
		case t.awaited(x, o):
			missing++
		}
	}
	t.BackOff = zeroTime
	switch {
	case here < max(t.Workers.Min, 1):
		t.View.State, t.LastCall = events.RoundStateOpen, zeroTime // last call is cancelled by falling under min
	case missing > 0 && t.LastCall.IsZero():
		t.View.State, t.LastCall = events.RoundStateSettling, t.now.Add(t.Spec.Elastic.LastCall.D())
	case missing > 0 && t.now.Before(t.LastCall):
	case t.backingOff(o):
		t.View.State = events.RoundStateSettling
	default:
		t.seal()
	}
}

// seal makes the generation of those who have joined.
func (t *transition) seal() {
	g := t.View.Proposed
	var in []*Member
	o := t.waitSet()
	for i := range t.Members {
		if x := &t.Members[i]; t.ready(x, o) {
			in = append(in, x)
		}
	}
	if t.Seniority == nil {
		t.Seniority = map[events.NodeID]events.Generation{}
	}
	places := make([]events.Place, len(in))
	for i, x := range in {
		places[i] = x.Place
		if _, ok := t.Seniority[x.Place.Node]; !ok {
			t.Seniority[x.Place.Node] = g
		}
	}
	aside := t.excludedPlaces()
	t.View.NoProgress = t.noProgress(o)
	members := assign(places, t.Seniority, t.HostOrder, t.Workers.Max)
	for i := range members {
		x := t.member(members[i].Place)
		m := &members[i]
		m.Incarnation, m.Agent, m.Attempt, m.Address, m.Commit, m.PID = x.Incarnation, x.Agent, x.Attempt, x.Address, x.Commit, x.PID
		x.State, x.Unsynced = active, false
	}
	t.View.Generation, t.View.Proposed, t.View.State, t.View.Members, t.firstRanks = g, 0, events.RoundStateSealed, members, nil
	for i := range t.Members { // silent ones are out; if they live they come in as newcomers
		x := &t.Members[i]
		x.RejoinBy = zeroTime
		if x.State == active && t.rankOf(x.Place, x.Incarnation) < 0 {
			x.State = pending
		}
	}
	for n := range t.Seniority { // a node without members starts anew when it returns, so it never outranks a survivor
		if _, ok := t.firstRank(n); !ok {
			delete(t.Seniority, n)
		}
	}
	t.removeMembers(func(x *Member) bool { return x.Leaving && x.State != active })
	t.LastCall, t.BackOff, t.Planned, t.PreviousCause, t.BrokenConns = zeroTime, zeroTime, false, nil, nil
	t.SealedAt, t.CommittedStep = t.now, newestStep(members)
	judge := events.Milliseconds(t.now.Sub(t.NoticeAt))
	t.publish(events.RoundSealed{
		Job: t.View.Job, Generation: g, Members: members, Cause: t.View.Cause, From: t.LastGood,
		Excluded: aside, NoticeMS: t.NoticeMS, JudgeMS: judge, NoProgress: t.View.NoProgress,
	})
	t.d.Spans = append(t.d.Spans, events.Span{
		Service: events.ServiceRendezvous, Name: "rendezvous " + g.String(), Parent: t.trace(),
		Self: events.ChildTrace(t.trace(), "rendezvous", g.String()), Start: t.NoticeAt, End: t.now,
		Attributes: map[string]string{"regroup.job.id": string(t.View.Job), "regroup.generation": g.String(), "regroup.incident.cause": string(t.View.Cause.Kind)},
	})
	if t.restart() {
		return
	}
	if slices.ContainsFunc(t.Members, func(x Member) bool { return x.State == joined && !x.Unsynced && !t.linkExcluded(&x) }) && len(members) < t.Workers.Max {
		t.requestGrowth(events.Cause{Kind: events.CauseGrow, Rank: -1, Detail: "a newcomer is ready"})
	}
}

// provenAfter is how long a generation under restart recovery must have worked to count as
// progress.
const provenAfter = time.Minute

// noProgress counts the generations in a row, up to the sealed one, that were lost to a fault and
// made no progress. With in-process recovery progress is a commit of a later step than its members
// came with; what other programs save nobody knows, so it is how long they worked. A planned change
// neither counts nor ends the row.
func (t *transition) noProgress(o waitSet) int {
	switch {
	case t.View.Generation == 0:
		return 0
	case t.restart():
		if t.NoticeAt.Sub(t.SealedAt) >= provenAfter {
			return 0
		}
	default:
		for i := range t.Members {
			if x := &t.Members[i]; t.ready(x, o) && x.Commit.Step > t.CommittedStep {
				return 0
			}
		}
	}
	if t.View.Cause.Kind.Planned() {
		return t.View.NoProgress
	}
	return t.View.NoProgress + 1
}

// backingOff tells whether the seal of a round for which everybody is there must wait, and notes
// until when. One that leaves out a node which others cannot reach is no repeat of what went wrong.
func (t *transition) backingOff(o waitSet) bool {
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

// assign gives ranks to places: nodes by seniority (the generation in which they first took part),
// then as hosts lists them, then name; slots within a node in order; cut at limit (0 = none). Local
// and cross ranks are Horovod's: local_rank counts on the node, and for each local rank the nodes
// that own it form a cross group, in order.
func assign(places []events.Place, seniority map[events.NodeID]events.Generation, hosts []events.NodeID, limit int) events.MemberTable {
	order := slices.Clone(places)
	slices.SortFunc(order, comparePlaces)
	var nodes [][]events.Place
	for i, p := range order {
		if i == 0 || order[i-1].Node != p.Node {
			nodes = append(nodes, nil)
		}
		last := &nodes[len(nodes)-1]
		*last = append(*last, p)
	}
	line := map[events.NodeID]int{}
	for i, n := range hosts {
		line[n] = i - len(hosts) // all others come behind
	}
	slices.SortStableFunc(nodes, func(a, b []events.Place) int {
		m, n := a[0].Node, b[0].Node
		return cmp.Or(cmp.Compare(seniority[m], seniority[n]), cmp.Compare(line[m], line[n]))
	})
	members := make(events.MemberTable, 0, len(order))
	for _, n := range nodes {
		for _, p := range n {
			if limit == 0 || len(members) < limit {
				members = append(members, events.Member{Place: p})
			}
		}
	}
	members.Number()
	return members
}

func comparePlaces(a, b events.Place) int {
	return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Slot, b.Slot))
}
