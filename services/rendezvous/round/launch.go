package round

import (
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
)

// resendAfter is how long a node may hold an old launch before the new one is published again. The
// same time is added for every resendNodes nodes.
const (
	resendAfter = time.Second
	resendNodes = 1000
)

// removeRetry is the interval between attempts to remove a document while its outbox is not empty.
const removeRetry = time.Second

// republish marks a node's launch to be published again.
func (s *State) republish(n ident.NodeID) { put(&s.unheard, n, true) }

// heartbeat publishes a launch again that a node has missed.
func (t *transition) heartbeat(h events.Heartbeat) {
	if t.LaunchMissed(h, t.now) {
		t.republish(h.Node)
	}
}

// launches publishes the launch of every node for which it has changed.
func (t *transition) launches() {
	if t.Nonce == "" {
		return
	}
	order := t.nodes(func(*Member) bool { return true })
	placed := len(order)
	for n := range t.Published { // a node that has lost its last member gets a launch too
		if len(t.membersOn(n)) == 0 {
			order = append(order, n)
		}
	}
	for n := range t.unheard { // a node removed before it had a member
		if _, published := t.Published[n]; !published && t.Nodes != nil && len(t.membersOn(n)) == 0 {
			order = append(order, n)
		}
	}
	if t.Nodes != nil && (t.Stopping != nil || t.closed()) {
		for _, c := range t.Nodes.Candidates {
			order = append(order, c.Node)
		}
	}
	if len(order) > placed {
		slices.Sort(order)
		order = slices.Compact(order)
	}
	revision, general := t.Revision+1, t.launchTemplate()
	alike := templateHash(general)
	for _, n := range order {
		members := t.membersOn(n)
		sum := t.fingerprint(alike, general.Phase, members)
		if published, ok := t.Published[n]; ok && published.Sum == sum && !t.unheard[n] {
			continue
		}
		t.Revision = revision
		put(&t.Published, n, PublishedLaunch{Revision: revision, Sum: sum, At: t.now})
		t.d.Launches = append(t.d.Launches, t.launch(general, n, members))
	}
	t.unheard = nil
}

// LaunchRevision implements controller.LaunchSource, like the next three methods.
func (s State) LaunchRevision() uint64 { return s.Revision }

// Launches rebuilds the launches published since a revision.
func (s State) Launches(after uint64) []events.Launch {
	var all []events.Launch
	general := s.launchTemplate()
	for _, n := range slices.Sorted(maps.Keys(s.Published)) {
		if s.Published[n].Revision > after {
			all = append(all, s.launch(general, n, s.membersOn(n)))
		}
	}
	return all
}

// Abbreviate drops the members from a seal, because the view has them.
func (s State) Abbreviate(b events.Body) (events.Body, bool) {
	seal, ok := b.(events.RoundSealed)
	if !ok || seal.Generation != s.View.Generation {
		return b, false
	}
	seal.Members = nil
	return seal, true
}

// Expand restores them.
func (s State) Expand(b events.Body) events.Body {
	if seal, ok := b.(events.RoundSealed); ok && seal.Generation == s.View.Generation {
		seal.Members = s.View.Members
		return seal
	}
	return b
}

// launchTemplate returns the part of a launch that is the same for every node.
func (s *State) launchTemplate() events.Launch {
	l := events.Launch{Job: s.View.Job, Spec: s.Spec, Cause: s.View.Cause, Trace: s.trace(), From: s.LastGood, Generation: s.View.Generation}
	switch {
	case s.Stopping != nil || s.closed():
		l.Phase, l.Reason, l.Now, l.JobEnds = events.PhaseStop, s.Stopping.Reason, s.Stopping.Now, true
	case s.open():
		l.Phase, l.Generation = events.PhasePrepare, s.View.Proposed
		l.Planned = s.graceful()
	default:
		l.Phase, l.World, l.Planned, l.Restarts = events.PhaseRun, len(s.View.Members), s.Planned, s.Restarts
		l.Spares = len(s.Spares)
		l.Token = ident.Token(s.Nonce, string(s.View.Job), s.View.Generation.String())
		if len(s.View.Members) > 0 {
			l.Master = s.View.Members[0].Address
		}
	}
	return l
}

const noPlaceReason = "the job has no place on this node any more"

// launch returns everything that a node must run for the job now.
func (s *State) launch(general events.Launch, n ident.NodeID, members []Member) events.Launch {
	l := general
	l.Node, l.Revision = n, s.Published[n].Revision
	if l.Phase == events.PhaseStop {
		return l
	}
	if len(members) == 0 {
		l.Phase, l.Reason = events.PhaseStop, s.removalReason(n)
		// Other members' data; a launch after a later seal then has the same content.
		l.World, l.Spares, l.Master, l.Token, l.Planned, l.Restarts = 0, 0, "", "", false, 0
	}
	for x := range each(members) {
		if !x.over() {
			l.Members = append(l.Members, s.launchMember(x, l.Phase))
		}
	}
	return l
}

func (s *State) launchMember(x *Member, phase events.Phase) events.LaunchMember {
	m := events.LaunchMember{Member: tables.Member{Place: x.Place, Incarnation: x.Incarnation, Attempt: x.Attempt, Rank: -1}, Leaving: s.leaving(x)}
	r := s.rank(x)
	if phase != events.PhaseRun || r < 0 || x.State != active {
		if phase == events.PhaseRun && !s.restart() {
			m.Peers = s.holders(x)
			if i := s.spare(x); i >= 0 {
				m.SpareRank = len(s.View.Members) + i
				m.LocalRank = m.SpareRank - s.spareNode(x.Place.Node)
			}
		}
		return m
	}
	m.Member = s.View.Members[r]
	m.Member.Commit, m.Member.Agent = tables.Commit{}, ""
	if w := len(s.View.Members); w > 1 {
		next, prev := (r+1)%w, (r+w-1)%w
		m.Peers = map[int]string{next: s.View.Members[next].Address, prev: s.View.Members[prev].Address}
	}
	return m
}

// leaving reports whether a worker must know that its place is not part of the next generation.
func (s *State) leaving(x *Member) bool { return x.Leaving && !s.restart() }

// holders returns members from which a newcomer can fetch the state: its future neighbours if it
// joins last, and one more, so that newcomers spread their requests.
func (s *State) holders(x *Member) map[int]string {
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

// launchHash is the intermediate value of an FNV-1a hash.
type launchHash uint64

const (
	hashBasis launchHash = 14695981039346656037
	hashPrime launchHash = 1099511628211
	// Bits kept: a changed launch has an equal hash, and is not published, once in 10^14.
	hashBits = 48
)

func (h launchHash) text(s string) launchHash {
	for i := range len(s) {
		h = (h ^ launchHash(s[i])) * hashPrime
	}
	return h.number(len(s))
}

func (h launchHash) number(n int) launchHash { return (h ^ launchHash(n)) * hashPrime }

func (h launchHash) boolean(v bool) launchHash {
	if v {
		return h.number(1)
	}
	return h.number(0)
}

// templateHash returns equal values for launches that differ only in their members.
func templateHash(l events.Launch) launchHash {
	return hashBasis.text(string(l.Phase)).number(int(l.Generation)).number(l.World).number(l.Spares).text(l.Master).text(l.Token).boolean(l.Planned).boolean(l.Now).text(l.Reason)
}

// fingerprint returns equal values for launches that ask the same of a node with these members.
func (s *State) fingerprint(general launchHash, phase events.Phase, members []Member) uint64 {
	h := general
	if len(members) == 0 && phase != events.PhaseStop {
		h = hashBasis.text(noPlaceReason) // regardless of the other members
	}
	for x := range each(members) {
		if phase == events.PhaseStop || x.over() {
			continue
		}
		h = h.number(int(x.Place.Slot) + 1).number(x.Attempt)
		if r := s.rank(x); phase == events.PhaseRun && r >= 0 && x.State == active {
			m := &s.View.Members[r]
			h = h.number(r).number(m.LocalRank).number(m.LocalSize).number(m.CrossRank).number(m.CrossSize)
		} else {
			h = h.number(-1)
		}
		if s.leaving(x) {
			h = h.number(-2)
		}
		if i := s.spare(x); i >= 0 && phase == events.PhaseRun {
			h = h.number(-3 - i)
		}
	}
	return uint64(h) & (1<<hashBits - 1)
}
