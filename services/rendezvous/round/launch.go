package round

import (
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
)

// resendAfter is how long a node may hold an old launch before it is told again, and as long again for each resendNodes nodes.
const (
	resendAfter = time.Second
	resendNodes = 1000
)

// removeAgain is how long the document of a removed job waits for what is still to be told, before it is tried again to remove it.
const removeAgain = time.Second

// tellAgain asks that a node is told its launch again.
func (s *State) tellAgain(n events.NodeID) {
	if s.again == nil {
		s.again = map[events.NodeID]bool{}
	}
	s.again[n] = true
}

// heartbeat tells a node again what it has not heard.
func (t *turn) heartbeat(h events.Heartbeat) {
	if t.Missed(h, t.now) {
		t.tellAgain(h.Node)
	}
}

// launches tells every node whose part has changed what it must run.
func (t *turn) launches() {
	if t.Nonce == "" {
		return
	}
	var order []events.NodeID
	for i := range t.Seats {
		if n := t.Seats[i].Place.Node; len(order) == 0 || order[len(order)-1] != n {
			order = append(order, n)
		}
	}
	placed := len(order)
	for n := range t.Told { // a node that has lost its last seat hears that too
		if len(t.seatsOn(n)) == 0 {
			order = append(order, n)
		}
	}
	for n := range t.again { // one that is out before it ever had a seat
		if _, told := t.Told[n]; !told && t.External != nil && len(t.seatsOn(n)) == 0 {
			order = append(order, n)
		}
	}
	if t.External != nil && (t.Stopping != nil || t.closed()) {
		for _, c := range t.External.Comers {
			order = append(order, c.Node)
		}
	}
	if len(order) > placed {
		slices.Sort(order)
		order = slices.Compact(order)
	}
	revision, general := t.Revision+1, t.general()
	alike := summed(general)
	for _, n := range order {
		seats := t.seatsOn(n)
		sum := t.fingerprint(alike, general.Phase, seats)
		if told, ok := t.Told[n]; ok && told.Sum == sum && !t.again[n] {
			continue
		}
		t.Revision = revision
		if t.Told == nil {
			t.Told = map[events.NodeID]Told{}
		}
		t.Told[n] = Told{Revision: revision, Sum: sum, At: t.now}
		t.d.Launches = append(t.d.Launches, t.launch(general, n, seats))
	}
	t.again = nil
}

// LaunchRevision implements controller.LaunchSource, as do the three methods after it.
func (s State) LaunchRevision() uint64 { return s.Revision }

// Launches makes again what was told since a revision.
func (s State) Launches(after uint64) []events.Launch {
	var all []events.Launch
	general := s.general()
	for _, n := range slices.Sorted(maps.Keys(s.Told)) {
		if s.Told[n].Revision > after {
			all = append(all, s.launch(general, n, s.seatsOn(n)))
		}
	}
	return all
}

// Abbreviate leaves the members out of a seal: the view has them.
func (s State) Abbreviate(b events.Body) (events.Body, bool) {
	seal, ok := b.(events.RoundSealed)
	if !ok || seal.Generation != s.View.Generation {
		return b, false
	}
	seal.Members = nil
	return seal, true
}

// Expand puts them in again.
func (s State) Expand(b events.Body) events.Body {
	if seal, ok := b.(events.RoundSealed); ok && seal.Generation == s.View.Generation {
		seal.Members = s.View.Members
		return seal
	}
	return b
}

// general is the part of a launch that is the same for every node.
func (s *State) general() events.Launch {
	l := events.Launch{Job: s.View.Job, Spec: s.Spec, Cause: s.View.Cause, Trace: s.trace(), From: s.Good, Generation: s.View.Generation}
	switch {
	case s.Stopping != nil || s.closed():
		l.Phase, l.Reason, l.Now = events.PhaseStop, s.Stopping.Reason, s.Stopping.Now
	case s.open():
		l.Phase, l.Generation = events.PhasePrepare, s.View.Proposed
		l.Planned = s.gentle()
	default:
		l.Phase, l.World, l.Planned = events.PhaseRun, len(s.View.Members), s.Planned
		l.Token = events.Token(s.Nonce, string(s.View.Job), s.View.Generation.String())
		if len(s.View.Members) > 0 {
			l.Master = s.View.Members[0].Address
		}
	}
	return l
}

const noPlace = "the job has no place on this node any more"

// launch is the whole of what a node must run for the job now.
func (s *State) launch(general events.Launch, n events.NodeID, seats []Seat) events.Launch {
	l := general
	l.Node, l.Revision = n, s.Told[n].Revision
	if l.Phase == events.PhaseStop {
		return l
	}
	if len(seats) == 0 {
		l.Phase, l.Reason = events.PhaseStop, s.whyOut(n)
		l.World, l.Master, l.Token, l.Planned = 0, "", "", false // what the others do; told again after a seal it says the same
	}
	for i := range seats {
		if m, ok := s.launchMember(&seats[i], l.Phase); ok {
			l.Members = append(l.Members, m)
		}
	}
	return l
}

// launchMember is a seat's worker as its node must run it; false if there is none to run.
func (s *State) launchMember(x *Seat, phase events.Phase) (events.LaunchMember, bool) {
	switch x.State {
	case dead, blamed, lost, finished:
		return events.LaunchMember{}, false
	}
	m := events.LaunchMember{Member: events.Member{Place: x.Place, Incarnation: x.Incarnation, Attempt: x.Attempt, Rank: -1}}
	r := s.rankOf(x.Place, x.Incarnation)
	if phase != events.PhaseRun || r < 0 || x.State != member {
		if phase == events.PhaseRun && !s.restart() {
			m.Peers = s.holders(x)
		}
		return m, true
	}
	m.Member = s.View.Members[r]
	m.Member.Commit, m.Member.Agent = events.Commit{}, ""
	if w := len(s.View.Members); w > 1 {
		next, prev := (r+1)%w, (r+w-1)%w
		m.Peers = map[int]string{next: s.View.Members[next].Address, prev: s.View.Members[prev].Address}
	}
	return m, true
}

// holders are members from whom a newcomer can fetch the state: those that are to be its neighbours if it comes in last, and
// another one, so that several newcomers do not all ask the same.
func (s *State) holders(x *Seat) map[int]string {
	w := len(s.View.Members)
	if w == 0 {
		return nil
	}
	peers := map[int]string{}
	for _, r := range [...]int{0, w - 1, s.find(x.Place) % w} {
		peers[r] = s.View.Members[r].Address
	}
	return peers
}

// sum is an FNV-1a hash under way.
type sum uint64

const (
	sumBasis sum = 14695981039346656037
	sumPrime sum = 1099511628211
	sumBits      = 48 // kept of it: a launch that is not told because of equal ones is one in 10^14
)

func (h sum) text(s string) sum {
	for i := range len(s) {
		h = (h ^ sum(s[i])) * sumPrime
	}
	return h.number(len(s))
}

func (h sum) number(n int) sum { return (h ^ sum(n)) * sumPrime }

func (h sum) truth(v bool) sum {
	if v {
		return h.number(1)
	}
	return h.number(0)
}

// summed is equal for launches that are alike but for their members.
func summed(l events.Launch) sum {
	return sumBasis.text(string(l.Phase)).number(int(l.Generation)).number(l.World).text(l.Master).text(l.Token).truth(l.Planned).truth(l.Now).text(l.Reason)
}

// fingerprint is equal for launches that ask for the same of a node with these seats.
func (s *State) fingerprint(general sum, phase events.Phase, seats []Seat) uint64 {
	h := general
	if len(seats) == 0 && phase != events.PhaseStop {
		h = sumBasis.text(noPlace) // whatever the others do
	}
	for i := range seats {
		x := &seats[i]
		if phase == events.PhaseStop || x.State == dead || x.State == blamed || x.State == lost || x.State == finished {
			continue
		}
		h = h.number(int(x.Place.Slot) + 1).number(x.Attempt)
		if r := s.rankOf(x.Place, x.Incarnation); phase == events.PhaseRun && r >= 0 && x.State == member {
			m := &s.View.Members[r]
			h = h.number(r).number(m.LocalRank).number(m.LocalSize).number(m.CrossRank).number(m.CrossSize)
		} else {
			h = h.number(-1)
		}
	}
	return uint64(h) & (1<<sumBits - 1)
}
