package round

import (
	"slices"
	"strconv"
	"time"

	"github.com/regroup-io/regroup/events"
)

// resendAfter is how long a node may hold an old launch before it is told again.
const resendAfter = time.Second

// again asks that a node is told its launch again.
func (t *turn) again(n events.NodeID) {
	if t.to == nil {
		t.to = map[events.NodeID]bool{}
	}
	t.to[n] = true
}

// heartbeat tells a node again what it has not heard.
func (t *turn) heartbeat(h events.Heartbeat) {
	if t.Missed(h) && t.now.Sub(t.Told[h.Node].At) >= resendAfter {
		t.again(h.Node)
	}
}

// launches tells every node whose part has changed what it must run.
func (t *turn) launches() {
	if t.Nonce == "" {
		return
	}
	var order []events.NodeID
	for _, x := range t.Seats {
		if n := x.Place.Node; len(order) == 0 || order[len(order)-1] != n {
			order = append(order, n)
		}
	}
	for n := range t.Told { // a node that has lost its last seat hears that too
		if len(t.seatsOn(n)) == 0 {
			order = append(order, n)
		}
	}
	if t.External != nil {
		for n := range t.to { // one that is out before it ever had a seat
			order = append(order, n)
		}
		if t.Stopping != nil || t.closed() {
			for _, c := range t.External.Comers {
				order = append(order, c.Node)
			}
		}
	}
	slices.Sort(order)
	order = slices.Compact(order)
	revision := t.Revision + 1
	for _, n := range order {
		l := t.launch(n)
		sum := fingerprint(l)
		if l.Phase == events.PhaseStop && t.Stopping == nil {
			sum = "no place" // in whichever generation, and for whatever reason: said once
		}
		if t.Told[n].Sum == sum && !t.to[n] {
			continue
		}
		t.Revision = revision
		l.Revision = revision
		if t.Told == nil {
			t.Told = map[events.NodeID]Told{}
		}
		t.Told[n] = Told{Revision: revision, Sum: sum, At: t.now}
		t.d.Launches = append(t.d.Launches, l)
	}
}

// launch is the whole of what a node must run for the job now.
func (t *turn) launch(n events.NodeID) events.Launch {
	l := events.Launch{Job: t.View.Job, Node: n, Spec: t.Spec, Cause: t.View.Cause, Trace: t.trace(), From: t.Good, Generation: t.View.Generation}
	switch {
	case t.Stopping != nil || t.closed():
		l.Phase, l.Reason, l.Now = events.PhaseStop, t.Stopping.Reason, t.Stopping.Now
		return l
	case t.open():
		l.Phase, l.Generation = events.PhasePrepare, t.View.Proposed
		l.Planned = t.gentle()
	default:
		l.Phase, l.World, l.Planned = events.PhaseRun, len(t.View.Members), t.Planned
		l.Token = events.Token(t.Nonce, string(t.View.Job), t.View.Generation.String())
		if len(t.View.Members) > 0 {
			l.Master = t.View.Members[0].Address
		}
	}
	seats := t.seatsOn(n)
	for i := range seats {
		if m, ok := t.launchMember(&seats[i], l.Phase); ok {
			l.Members = append(l.Members, m)
		}
	}
	if len(seats) == 0 {
		l.Phase, l.Reason = events.PhaseStop, t.whyOut(n)
	}
	return l
}

// launchMember is a seat's worker as its node must run it; false if there is none to run.
func (t *turn) launchMember(x *Seat, phase events.Phase) (events.LaunchMember, bool) {
	switch x.State {
	case dead, blamed, lost, finished:
		return events.LaunchMember{}, false
	}
	m := events.LaunchMember{Member: events.Member{Place: x.Place, Incarnation: x.Incarnation, Attempt: x.Attempt, Rank: -1}}
	r := t.rankOf(x.Place, x.Incarnation)
	if phase != events.PhaseRun || r < 0 || x.State != member {
		if phase == events.PhaseRun && !t.restart() {
			m.Peers = t.holders(x)
		}
		return m, true
	}
	m.Member = t.View.Members[r]
	m.Member.Commit, m.Member.Agent = events.Commit{}, ""
	if w := len(t.View.Members); w > 1 {
		next, prev := (r+1)%w, (r+w-1)%w
		m.Peers = map[int]string{next: t.View.Members[next].Address, prev: t.View.Members[prev].Address}
	}
	return m, true
}

// holders are members from whom a newcomer can fetch the state: those that are to be its neighbours if it comes in last, and
// another one, so that several newcomers do not all ask the same.
func (t *turn) holders(x *Seat) map[int]string {
	w := len(t.View.Members)
	if w == 0 {
		return nil
	}
	peers := map[int]string{}
	for _, r := range [...]int{0, w - 1, slices.IndexFunc(t.Seats, func(y Seat) bool { return y.Place == x.Place }) % w} {
		peers[r] = t.View.Members[r].Address
	}
	return peers
}

// fingerprint is equal for launches that ask for the same.
func fingerprint(l events.Launch) string {
	var b []byte
	text := func(s string) { b = append(strconv.AppendQuote(b, s), ' ') }
	number := func(n int) { b = append(strconv.AppendInt(b, int64(n), 10), ' ') }
	text(string(l.Phase))
	text(l.Generation.String())
	number(l.World)
	text(l.Master)
	text(l.Token)
	b = strconv.AppendBool(strconv.AppendBool(b, l.Planned), l.Now)
	text(l.Reason)
	for _, m := range l.Members {
		for _, n := range [...]int{int(m.Place.Slot), m.Rank, m.Attempt, m.LocalRank, m.LocalSize, m.CrossRank, m.CrossSize} {
			number(n)
		}
	}
	return events.Token(string(b))
}
