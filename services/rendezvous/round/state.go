package round

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
)

// memberState is what can be said of a seat; see the package comment.
type memberState string

const (
	pending       memberState = "pending"
	joined        memberState = "joined"
	active        memberState = "active"
	dead          memberState = "dead"
	respawnDenied memberState = "respawn denied"
	lost          memberState = "lost"
	finished      memberState = "finished"
)

// Member is one place of the job and the newest life in it.
type Member struct {
	Place        events.Place
	State        memberState
	Attempt      int
	Incarnation  events.Incarnation // of the newest life that joined
	Agent        events.Incarnation
	Address      string
	PID          int
	Commit       events.Commit
	Unsynced     bool               // joined, and fetches the state aside
	Stopped      events.Incarnation // restart recovery: newest life that was stopped for the next one
	Leaving      bool               // no longer in the placement: leaves at the next commit
	RejoinBy     time.Time          // peers lost it, or all stand still; it may rejoin until then
	Unresponsive bool               // it did not, and was a member until then
}

// State is the rendezvous of one job. Fields without a name in JSON are stored in Packed; see Pack.
type State struct {
	View            events.RoundView                     `json:"view"`
	Spec            spec.Job                             `json:"spec"`
	Workers         spec.Workers                         `json:"workers"`
	HostOrder       []events.NodeID                      `json:"hosts,omitempty"`    // nodes in the order of the host list
	Nonce           string                               `json:"nonce"`              // part of the generations' tokens
	Placement       uint64                               `json:"placement"`          // number of the last placement.set taken in
	LastGood        events.Generation                    `json:"good"`               // last generation that made a good step
	Planned         bool                                 `json:"planned,omitempty"`  // members were asked to leave at their next commit
	PreviousCause   *events.Cause                        `json:"before,omitempty"`   // cause of the sealed generation, while Planned
	Attempts        map[string]int                       `json:"attempts,omitempty"` // highest attempt of places that were given up
	Disconnected    map[events.NodeID]events.Incarnation `json:"cut,omitempty"`      // agents whose connection the broker saw end
	NoticeAt        time.Time                            `json:"notice_at,omitzero"` // first notice of what opened the round
	NoticeMS        float64                              `json:"notice_ms,omitempty"`
	LastCall        time.Time                            `json:"last_call,omitzero"`  // settling until then
	BackOff         time.Time                            `json:"back_off,omitzero"`   // everybody is there, and the seal waits until then
	SealedAt        time.Time                            `json:"sealed_at,omitzero"`  // of the sealed generation
	CommittedStep   uint64                               `json:"committed,omitempty"` // newest step that its members could return to then
	Growth          *Growth                              `json:"grow,omitempty"`      // newcomers are ready, others may be in a moment
	PendingAt       time.Time                            `json:"fresh,omitzero"`      // when a seat was last made or emptied for a new life
	Finishing       bool                                 `json:"finishing,omitempty"`
	Stopping        *events.JobStopping                  `json:"stopping,omitempty"`
	Removed         time.Time                            `json:"removed,omitzero"`   // the job's record is no more; this one is to go, and is tried again then
	Nodes           *NodeRendezvous                      `json:"external,omitempty"` // only if the job's nodes come by themselves
	Revision        uint64                               `json:"revision"`           // of the newest launches
	ReportedMissing events.Places                        `json:"asked,omitempty"`    // told as asked back in vain
	Links           []Link                               `json:"links,omitempty"`    // between nodes that could not reach each other, by nodes
	BrokenConns     [][2]int                             `json:"broken,omitempty"`   // ranks of the sealed generation whose connection broke, not yet charged
	Packed          string                               `json:"nodes,omitempty"`

	Members   []Member                             `json:"-"` // by place
	Seniority map[events.NodeID]events.Generation  `json:"-"`
	Agents    map[events.NodeID]events.Incarnation `json:"-"` // newest incarnation known per node
	NodeFacts map[events.NodeID]uint64             `json:"-"` // number of the last fact taken in about a node
	Published map[events.NodeID]PublishedLaunch    `json:"-"`

	firstRanks map[events.NodeID]int  // rank of a node's first member in the sealed generation; nil = not looked up yet
	unheard    map[events.NodeID]bool // nodes that are told their launch again although it has not changed
}

// PublishedLaunch remembers the launch that a node was last given.
type PublishedLaunch struct {
	Revision uint64
	Sum      uint64 // of its content without the revision
	At       time.Time
}

func (s *State) restart() bool { return s.Spec.Recovery != spec.RecoveryInProcess }
func (s *State) open() bool    { return s.View.Proposed != 0 }
func (s *State) closed() bool  { return s.View.State == events.RoundStateClosed }

func (s *State) member(p events.Place) *Member {
	i := s.find(p)
	if i == len(s.Members) || s.Members[i].Place != p {
		return nil
	}
	return &s.Members[i]
}

// find returns where the seat of a place is, or would be.
func (s *State) find(p events.Place) int {
	return sort.Search(len(s.Members), func(i int) bool { return !s.Members[i].Place.Less(p) })
}

func (s *State) addMember(p events.Place) {
	s.Members = slices.Insert(s.Members, s.find(p), Member{Place: p, State: pending, Attempt: s.Attempts[p.String()] + 1})
}

// removeMembers removes the seats that gone selects and remembers how far their attempts have
// counted.
func (s *State) removeMembers(gone func(*Member) bool) {
	kept := s.Members[:0]
	for i := range s.Members {
		x := s.Members[i]
		if !gone(&x) {
			kept = append(kept, x)
			continue
		}
		if s.Attempts == nil {
			s.Attempts = map[string]int{}
		}
		s.Attempts[x.Place.String()] = x.Attempt
	}
	s.Members = kept
}

// memberOfRank returns the seat of a rank of the sealed generation, if the same life still has it.
func (s *State) memberOfRank(rank int) *Member {
	if rank < 0 || rank >= len(s.View.Members) {
		return nil
	}
	m := s.View.Members[rank]
	x := s.member(m.Place)
	if x == nil || x.Incarnation != m.Incarnation {
		return nil
	}
	return x
}

// membersOn returns the seats of a node; seats are in the order of their places.
func (s *State) membersOn(n events.NodeID) []Member {
	from := sort.Search(len(s.Members), func(i int) bool { return s.Members[i].Place.Node >= n })
	to := from
	for to < len(s.Members) && s.Members[to].Place.Node == n {
		to++
	}
	return s.Members[from:to]
}

// firstRank returns the rank of a node's first member in the sealed generation, if it has one.
func (s *State) firstRank(n events.NodeID) (rank int, ok bool) {
	if s.firstRanks == nil {
		s.firstRanks = map[events.NodeID]int{}
		for r := range s.View.Members {
			if n := s.View.Members[r].Place.Node; r == 0 || s.View.Members[r-1].Place.Node != n {
				s.firstRanks[n] = r
			}
		}
	}
	rank, ok = s.firstRanks[n]
	return rank, ok
}

// rankOf returns the rank of a life in the sealed generation, -1 if it has none.
func (s *State) rankOf(p events.Place, inc events.Incarnation) int {
	from, ok := s.firstRank(p.Node)
	if !ok {
		return -1
	}
	for r := from; r < len(s.View.Members) && s.View.Members[r].Place.Node == p.Node; r++ {
		if m := &s.View.Members[r]; m.Place.Slot == p.Slot && m.Incarnation == inc {
			return r
		}
	}
	return -1
}

// Superseded tells whether a later fact about a node was taken in, so that one that comes late, or
// a record that was read before, must not undo it. Unnumbered ones are of no order.
func (s State) Superseded(n events.NodeID, number uint64) bool {
	return number != 0 && number <= s.NodeFacts[n]
}

// LaunchMissed tells whether a node has not heard its newest launch, though it has had time. An
// ended job matters only to nodes that still hold it.
func (s State) LaunchMissed(h events.Heartbeat, now time.Time) bool {
	told, ok := s.Published[h.Node]
	held, holds := h.Revisions[s.View.Job]
	// One among thousands hears late, and telling all of them again would make it later.
	wait := resendAfter * time.Duration(1+len(s.Published)/resendNodes)
	return ok && held < told.Revision && (holds || !s.closed()) && now.Sub(told.At) >= wait
}

// Lacks tells whether it is news to the job that a node lives with this agent, or that its
// connection is gone or back.
func (s State) Lacks(n events.NodeFact) bool {
	if s.Nodes != nil || n.Disconnected || s.Disconnected[n.Node] != "" || s.Agents[n.Node] > n.Incarnation {
		return true
	}
	return slices.ContainsFunc(s.membersOn(n.Node), func(x Member) bool {
		return x.State == lost || x.State == dead || x.State == respawnDenied || (x.Agent != "" && x.Agent != n.Incarnation)
	})
}

// Concerns tells whether what happens to a node matters to this job.
func (s State) Concerns(n events.NodeID) bool {
	if s.closed() {
		return false
	}
	if s.HasCandidate(n) || s.countsAsLost(n) {
		return true
	}
	_, told := s.Published[n]
	return told || len(s.membersOn(n)) > 0
}

// What a round's document does without when it would outgrow its store.
const (
	shortReason = 48     // bytes of why a node is out
	maxRemoved  = 10_000 // nodes that are out and remembered
)

// Shrink leaves out what only people read: the words with which nodes went, and in the end the
// nodes that went first. One of those that asks again is taken for new.
func (s State) Shrink() (State, bool) {
	x := s.Nodes
	if x == nil {
		return s, false
	}
	done := false
	for n, o := range x.Removed {
		if len(o.Reason) > shortReason {
			o.Reason, done = limits.Shorten(o.Reason, shortReason), true
			x.Removed[n] = o
		}
	}
	if done || len(x.Removed) <= maxRemoved {
		return s, done
	}
	type out struct {
		node  events.NodeID
		agent events.Incarnation
	}
	all := make([]out, 0, len(x.Removed))
	for n, o := range x.Removed {
		all = append(all, out{n, o.Agent})
	}
	slices.SortFunc(all, func(a, b out) int { return cmp.Or(cmp.Compare(a.agent, b.agent), cmp.Compare(a.node, b.node)) })
	for _, o := range all[:len(all)-maxRemoved] { // ULIDs sort by age
		delete(x.Removed, o.node)
	}
	return s, true
}
