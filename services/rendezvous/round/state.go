package round

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// memberState is the state of a member; see the package comment.
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

// Member is one place of the job and its newest worker incarnation.
type Member struct {
	Place        ident.Place
	State        memberState
	Attempt      int
	Incarnation  ident.Incarnation // of the newest incarnation that joined
	Agent        ident.Incarnation
	Address      string
	PID          int
	Commit       tables.Commit
	Unsynced     bool              // joined, and still fetches the state
	Stopped      ident.Incarnation // restart recovery: newest incarnation that was stopped before the next one
	Leaving      bool              // no longer in the placement: leaves at the next commit
	RejoinBy     time.Time         // accused by peers, or the job stalled; it may rejoin until then
	Unresponsive bool              // it did not rejoin in time, and was active until then
}

// State is the rendezvous of one job. Fields without a name in JSON are stored in Packed; see Pack.
type State struct {
	View      events.RoundView `json:"view"`
	Spec      spec.Job         `json:"spec"`
	Workers   spec.Workers     `json:"workers"`
	HostOrder []ident.NodeID   `json:"host_order,omitempty"` // nodes in the order of the host list
	Nonce     string           `json:"nonce"`                // part of the generations' tokens
	Placement uint64           `json:"placement"`            // number of the last placement.set applied
	LastGood  ident.Generation `json:"last_good"`            // last generation that made a good step
	Restarts  int              `json:"restarts,omitempty"`   // sealed generations that a failure has made necessary
	// Members were asked to leave at their next commit.
	Planned bool `json:"planned,omitempty"`
	// Cause of the sealed generation, while Planned.
	PreviousCause *events.Cause `json:"previous_cause,omitempty"`
	// Highest attempt of places that were given up.
	Attempts map[string]int `json:"attempts,omitempty"`
	// Agents whose connection the broker saw close.
	Disconnected map[ident.NodeID]ident.Incarnation `json:"disconnected,omitempty"`
	NoticeAt     time.Time                          `json:"notice_at,omitzero"` // first notice of what opened the round
	NoticeMS     float64                            `json:"notice_ms,omitempty"`
	LastCall     time.Time                          `json:"last_call,omitzero"` // end of the last call
	// All members have joined, and the seal is delayed until then.
	BackOff  time.Time `json:"back_off,omitzero"`
	SealedAt time.Time `json:"sealed_at,omitzero"` // of the sealed generation
	// Newest step that its members could return to at that time; under restart recovery, that a
	// process had reported.
	CommittedStep uint64 `json:"committed_step,omitempty"`
	// Restart recovery: newest step that a process has reported.
	ReportedStep uint64 `json:"reported_step,omitempty"`
	// The newest round whose seal was delayed, and this was published.
	DelayedIn ident.Generation `json:"delayed_in,omitempty"`
	DelayedAt time.Time        `json:"delayed_at,omitzero"`
	Growth    *Growth          `json:"growth,omitempty"` // newcomers are ready, others may soon be
	// When a member was last created or reset for a new incarnation.
	PendingAt time.Time           `json:"pending_at,omitzero"`
	Finishing bool                `json:"finishing,omitempty"`
	Stopping  *events.JobStopping `json:"stopping,omitempty"`
	// The job's record is gone; when to try again to remove this document.
	DeleteAt        time.Time       `json:"delete_at,omitzero"`
	Nodes           *NodeRendezvous `json:"nodes,omitempty"`            // only for jobs with self-registered nodes
	Revision        uint64          `json:"revision"`                   // of the newest launches
	ReportedMissing ident.Places    `json:"reported_missing,omitempty"` // published as missing
	// Between nodes that could not reach each other, sorted by nodes.
	Links []Link `json:"links,omitempty"`
	// Ranks of the sealed generation whose connection broke, not yet counted.
	BrokenConns [][2]int `json:"broken_conns,omitempty"`
	// Nodes that were lost with processes of the sealed generation.
	LostNodes []LostNode `json:"lost_nodes,omitempty"`
	// Of the sealed generation, which they give what they have of the state.
	Spares tables.MemberTable `json:"spares,omitempty"`
	// Ranks of the sealed generation whose process has ended.
	EndedRanks bits `json:"ended_ranks,omitempty"`
	// The document was lost while a generation ran, and made again: the next one is to be opened.
	Rebuilt bool    `json:"rebuilt,omitempty"`
	Packed  *packed `json:"packed,omitempty"`

	Members   []Member                           `json:"-"` // by place
	Seniority map[ident.NodeID]ident.Generation  `json:"-"`
	Agents    map[ident.NodeID]ident.Incarnation `json:"-"` // newest incarnation known per node
	NodeFacts map[ident.NodeID]uint64            `json:"-"` // number of the last fact applied about a node
	Published map[ident.NodeID]PublishedLaunch   `json:"-"`

	firstRanks map[ident.NodeID]int  // rank of a node's first member in the sealed generation; nil = not computed yet
	unheard    map[ident.NodeID]bool // nodes whose launch is published again although it has not changed
}

// PublishedLaunch records the launch last published for a node.
type PublishedLaunch struct {
	Revision uint64
	Sum      uint64 // of its content without the revision
	At       time.Time
}

func (s *State) restart() bool { return s.Spec.Recovery != spec.RecoveryInProcess }
func (s *State) open() bool    { return s.View.Proposed != 0 }
func (s *State) closed() bool  { return s.View.State == events.RoundStateClosed }

// over reports whether the member's worker has ended, or counts as lost.
func (x *Member) over() bool {
	return x.State == dead || x.State == respawnDenied || x.State == lost || x.State == finished
}

// all yields the members, by place.
func (s *State) all() iter.Seq[*Member] { return each(s.Members) }

func each(members []Member) iter.Seq[*Member] {
	return func(yield func(*Member) bool) {
		for i := range members {
			if !yield(&members[i]) {
				return
			}
		}
	}
}

func (s *State) count(which func(*Member) bool) (n int) {
	for x := range s.all() {
		if which(x) {
			n++
		}
	}
	return n
}

// places returns the places of the members that which selects.
func (s *State) places(which func(*Member) bool) (out ident.Places) {
	for x := range s.all() {
		if which(x) {
			out = append(out, x.Place)
		}
	}
	return out
}

// nodes returns the nodes of the members that which selects, by name.
func (s *State) nodes(which func(*Member) bool) (out []ident.NodeID) {
	for x := range s.all() {
		if n := x.Place.Node; which(x) && (len(out) == 0 || out[len(out)-1] != n) {
			out = append(out, n)
		}
	}
	return out
}

func (s *State) member(p ident.Place) *Member {
	i := s.find(p)
	if i == len(s.Members) || s.Members[i].Place != p {
		return nil
	}
	return &s.Members[i]
}

// find returns the index of the member of a place, or where it would be inserted.
func (s *State) find(p ident.Place) int {
	return sort.Search(len(s.Members), func(i int) bool { return s.Members[i].Place.Compare(p) >= 0 })
}

func (s *State) addMember(p ident.Place) {
	s.Members = slices.Insert(s.Members, s.find(p), Member{Place: p, State: pending, Attempt: s.Attempts[p.String()] + 1})
}

// removeMembers removes the members that gone selects and records their attempts.
func (s *State) removeMembers(remove func(*Member) bool) {
	s.Members = slices.DeleteFunc(s.Members, func(x Member) bool {
		if !remove(&x) {
			return false
		}
		put(&s.Attempts, x.Place.String(), x.Attempt)
		return true
	})
}

// put sets m[k] in a map that may be nil.
func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

// memberOfRank returns the member of a sealed rank if it is still the same incarnation.
func (s *State) memberOfRank(rank int) *Member {
	if rank < 0 || rank >= len(s.View.Members) {
		return nil
	}
	m := s.View.Members[rank]
	if x := s.member(m.Place); x != nil && x.Incarnation == m.Incarnation {
		return x
	}
	return nil
}

// membersOn returns the members of a node. Members are sorted by place.
func (s *State) membersOn(n ident.NodeID) []Member {
	from := sort.Search(len(s.Members), func(i int) bool { return s.Members[i].Place.Node >= n })
	to := from
	for to < len(s.Members) && s.Members[to].Place.Node == n {
		to++
	}
	return s.Members[from:to]
}

// firstRank returns the rank of a node's first member in the sealed generation, if it has one.
func (s *State) firstRank(n ident.NodeID) (rank int, ok bool) {
	rank, ok = s.ranksOfNodes()[n]
	return rank, ok
}

// ranksOfNodes returns the rank of each node's first member in the sealed generation.
func (s *State) ranksOfNodes() map[ident.NodeID]int {
	if s.firstRanks == nil {
		s.firstRanks = map[ident.NodeID]int{}
		for r := range s.View.Members {
			if n := s.View.Members[r].Place.Node; r == 0 || s.View.Members[r-1].Place.Node != n {
				s.firstRanks[n] = r
			}
		}
	}
	return s.firstRanks
}

// rank returns the rank of a member's incarnation in the sealed generation, or -1.
func (s *State) rank(x *Member) int { return s.rankOf(x.Place, x.Incarnation) }

// rankOf returns the rank of an incarnation in the sealed generation, or -1.
func (s *State) rankOf(p ident.Place, inc ident.Incarnation) int {
	if r := s.rankAt(p); r >= 0 && s.View.Members[r].Incarnation == inc {
		return r
	}
	return -1
}

// rankAt returns the rank of a place's member in the sealed generation, or -1.
func (s *State) rankAt(p ident.Place) int {
	from, ok := s.firstRank(p.Node)
	if !ok {
		return -1
	}
	for r := from; r < len(s.View.Members) && s.View.Members[r].Place.Node == p.Node; r++ {
		if s.View.Members[r].Place.Slot == p.Slot {
			return r
		}
	}
	return -1
}

// Superseded reports whether a later fact about a node was applied, so that a late fact, or a
// record that was read before, is ignored. Unnumbered inputs have no order.
func (s State) Superseded(n ident.NodeID, number uint64) bool {
	return number != 0 && number <= s.NodeFacts[n]
}

// LaunchMissed reports whether a node lacks its newest launch although it has had time to receive
// it. An ended job matters only to nodes that still run it.
func (s State) LaunchMissed(h events.Heartbeat, now time.Time) bool {
	published, ok := s.Published[h.Node]
	held, holds := h.Revisions[s.View.Job]
	// Scale the wait with the number of nodes: delivery to thousands takes longer, and sending
	// again would delay it further.
	wait := resendAfter * time.Duration(1+len(s.Published)/resendNodes)
	return ok && held < published.Revision && (holds || !s.closed()) && now.Sub(published.At) >= wait
}

// Lacks reports whether a fact changes what the job knows of a node: its agent, or that its
// connection is gone or back.
func (s State) Lacks(n events.NodeFact) bool {
	if s.Nodes != nil || n.Disconnected || s.Disconnected[n.Node] != "" || s.Agents[n.Node] > n.Incarnation {
		return true
	}
	return slices.ContainsFunc(s.membersOn(n.Node), func(x Member) bool {
		return x.State == lost || x.State == dead || x.State == respawnDenied || (x.Agent != "" && x.Agent != n.Incarnation)
	})
}

// Concerns reports whether facts about a node matter to this job.
func (s State) Concerns(n ident.NodeID) bool {
	_, published := s.Published[n]
	return !s.closed() && (published || s.HasCandidate(n) || s.countsAsLost(n) || len(s.membersOn(n)) > 0)
}

// Limits on what Shrink keeps.
const (
	shortReason = 48     // bytes of the reason of a removed node
	maxRemoved  = 10_000 // removed nodes that are kept
)

// Shrink drops what is only informational: the long reasons of removed nodes, and finally the nodes
// that were removed first. Such a node counts as new when it asks again.
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
	all := slices.SortedFunc(maps.Keys(x.Removed), func(a, b ident.NodeID) int {
		return cmp.Or(cmp.Compare(x.Removed[a].Agent, x.Removed[b].Agent), cmp.Compare(a, b)) // ULIDs sort by age
	})
	for _, n := range all[:len(all)-maxRemoved] {
		delete(x.Removed, n)
	}
	return s, true
}
