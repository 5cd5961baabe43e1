package round

import (
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
)

var zeroTime time.Time

// outlook is what decides for whom the open round waits, beside the seat itself.
type outlook struct {
	keeper *Seat
	coming bool // newcomers are waited for
}

// With survivors enough, a respawned or new worker warms up aside and is taken in at a commit boundary. Restarted groups
// start together anyway, so a granted respawn is waited for: one new generation, not two.
func (t *turn) outlook() outlook {
	k := t.keeper()
	return outlook{k, t.restart() || t.View.Generation == 0 || t.atHand(k) < t.Workers.Min || (k == nil && t.survivors() == 0)}
}

// expected tells whether the open round waits for a seat.
func (t *turn) expected(x *Seat, o outlook) bool {
	if x.Leaving {
		return x == o.keeper
	}
	if t.heldBack(x) {
		return false
	}
	switch x.State {
	case joined:
		return !x.Cold || o.coming
	case member:
		return true
	case coming:
		return o.coming
	case dead:
		return t.restart() // until the verdict
	}
	return false
}

// ready tells whether a seat that has joined is in the generation that is sealed now. Who fetches the state aside is not, unless
// newcomers are waited for: the others would have to wait until it has the state.
func (t *turn) ready(x *Seat, o outlook) bool {
	return x.State == joined && !t.heldBack(x) && (!x.Leaving || x == o.keeper) && (!x.Cold || o.coming)
}

// survivors counts the members of the sealed generation that are not known to be gone.
func (t *turn) survivors() int {
	n := 0
	for i := range t.Seats {
		x := &t.Seats[i]
		if (x.State == member || x.State == joined) && !x.Leaving && !t.heldBack(x) && t.rankOf(x.Place, x.Incarnation) >= 0 {
			n++
		}
	}
	return n
}

// atHand counts who can be in the next generation without anybody starting: survivors, those who have joined, the keeper.
func (t *turn) atHand(keeper *Seat) int {
	n := 0
	for i := range t.Seats {
		x := &t.Seats[i]
		switch {
		case x.Leaving:
			if x == keeper {
				n++
			}
		case t.heldBack(x):
		case x.State == joined && !x.Cold, x.State == member && t.rankOf(x.Place, x.Incarnation) >= 0:
			n++
		}
	}
	return n
}

// needsKeeper tells whether everybody who holds the job's state is leaving: then one of them stays until the newcomers have
// received it, or the state would be lost in a planned change.
func (t *turn) needsKeeper() bool { return !t.restart() && t.Good > 0 && t.survivors() == 0 }

// keeper is the leaving member that hands the state over, if one is needed: the one with the lowest rank that is left.
func (t *turn) keeper() *Seat {
	if !t.needsKeeper() {
		return nil
	}
	var best *Seat
	for i := range t.Seats {
		x := &t.Seats[i]
		if !x.Leaving || (x.State != member && x.State != joined) {
			continue
		}
		r := t.rankOf(x.Place, x.Incarnation)
		if r >= 0 && (best == nil || r < t.rankOf(best.Place, best.Incarnation)) {
			best = x
		}
	}
	return best
}

// letKeeperGo asks for the change without the keeper, once a generation makes steps in which enough others have the state
// from it. Without them nobody would have it.
func (t *turn) letKeeperGo() {
	if t.open() || t.Good != t.View.Generation || t.survivors() < max(t.Workers.Min, 1) {
		return
	}
	for i := range t.Seats {
		if x := &t.Seats[i]; x.Leaving && x.State == member {
			place := x.Place
			t.change(events.Cause{
				Kind: events.CauseShrink, Place: &place, Node: place.Node, Rank: t.rankOf(place, x.Incarnation),
				Detail: "has handed the state over",
			})
			return
		}
	}
}

func (t *turn) expectedPlaces() events.Places {
	var out events.Places
	o := t.outlook()
	for i := range t.Seats {
		if t.expected(&t.Seats[i], o) {
			out = append(out, t.Seats[i].Place)
		}
	}
	return out
}

// settle seals the open round if everybody expected has joined, or if at least min have and the last call is over.
func (t *turn) settle() {
	if !t.open() || t.Stopping != nil {
		return
	}
	here, missing, o := 0, 0, t.outlook()
	for i := range t.Seats {
		x := &t.Seats[i]
		switch {
		case t.ready(x, o):
			here++
		case t.expected(x, o):
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
	case t.backsOff(o):
		t.View.State = events.RoundStateSettling
	default:
		t.seal()
	}
}

// seal makes the generation of those who have joined.
func (t *turn) seal() {
	g := t.View.Proposed
	var in []*Seat
	o := t.outlook()
	for i := range t.Seats {
		if x := &t.Seats[i]; t.ready(x, o) {
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
	aside := t.aside()
	t.View.NoProgress = t.noProgress(o)
	members := assign(places, t.Seniority, t.HostOrder, t.Workers.Max)
	for i := range members {
		x := t.seat(members[i].Place)
		m := &members[i]
		m.Incarnation, m.Agent, m.Attempt, m.Address, m.Commit, m.PID = x.Incarnation, x.Agent, x.Attempt, x.Address, x.Commit, x.PID
		x.State, x.Cold = member, false
	}
	t.View.Generation, t.View.Proposed, t.View.State, t.View.Members, t.where = g, 0, events.RoundStateSealed, members, nil
	for i := range t.Seats { // silent ones are out; if they live they come in as newcomers
		x := &t.Seats[i]
		x.Accused = zeroTime
		if x.State == member && t.rankOf(x.Place, x.Incarnation) < 0 {
			x.State = coming
		}
	}
	for n := range t.Seniority { // a node without members starts anew when it returns, so it never outranks a survivor
		if _, ok := t.firstRank(n); !ok {
			delete(t.Seniority, n)
		}
	}
	t.dropSeats(func(x *Seat) bool { return x.Leaving && x.State != member })
	t.LastCall, t.BackOff, t.Planned, t.Before, t.Broken = zeroTime, zeroTime, false, nil, nil
	t.SealedAt, t.Committed = t.now, newestStep(members)
	judge := events.Milliseconds(t.now.Sub(t.NoticeAt))
	t.tell(events.RoundSealed{
		Job: t.View.Job, Generation: g, Members: members, Cause: t.View.Cause, From: t.Good,
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
	if slices.ContainsFunc(t.Seats, func(x Seat) bool { return x.State == joined && !x.Cold && !t.heldBack(&x) }) && len(members) < t.Workers.Max {
		t.grow(events.Cause{Kind: events.CauseGrow, Rank: -1, Detail: "a newcomer is ready"})
	}
}
