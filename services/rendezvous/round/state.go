package round

import (
	"slices"
	"sort"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// seatState is what can be said of a seat; see the package comment.
type seatState string

const (
	coming   seatState = "coming"
	joined   seatState = "joined"
	member   seatState = "member"
	dead     seatState = "dead"
	blamed   seatState = "blamed"
	lost     seatState = "lost"
	finished seatState = "finished"
)

// Seat is one place of the job and the newest life in it.
type Seat struct {
	Place       events.Place
	State       seatState
	Attempt     int
	Incarnation events.Incarnation // of the newest life that joined
	Agent       events.Incarnation
	Address     string
	PID         int
	Commit      events.Commit
	Cold        bool               // joined, and fetches the state aside
	Over        events.Incarnation // restart recovery: newest life that was stopped for the next one
	Leaving     bool               // no longer in the placement: leaves at the next commit
	Accused     time.Time          // peers lost it, or all stand still; it may rejoin until then
	Silent      bool               // it did not, and was a member until then
}

// State is the rendezvous of one job. Fields without a name in JSON are stored in Packed; see Pack.
type State struct {
	View      events.RoundView                     `json:"view"`
	Spec      spec.Job                             `json:"spec"`
	Workers   spec.Workers                         `json:"workers"`
	HostOrder []events.NodeID                      `json:"hosts,omitempty"`    // nodes in the order of the host list
	Nonce     string                               `json:"nonce"`              // part of the generations' tokens
	Placement uint64                               `json:"placement"`          // number of the last placement.set taken in
	Good      events.Generation                    `json:"good"`               // last generation that made a good step
	Planned   bool                                 `json:"planned,omitempty"`  // members were asked to leave at their next commit
	Before    *events.Cause                        `json:"before,omitempty"`   // cause of the sealed generation, while Planned
	Attempts  map[string]int                       `json:"attempts,omitempty"` // highest attempt of places that were given up
	Cut       map[events.NodeID]events.Incarnation `json:"cut,omitempty"`      // agents whose connection the broker saw end
	NoticeAt  time.Time                            `json:"notice_at,omitzero"` // first notice of what opened the round
	NoticeMS  float64                              `json:"notice_ms,omitempty"`
	LastCall  time.Time                            `json:"last_call,omitzero"`  // settling until then
	BackOff   time.Time                            `json:"back_off,omitzero"`   // everybody is there, and the seal waits until then
	SealedAt  time.Time                            `json:"sealed_at,omitzero"`  // of the sealed generation
	Committed uint64                               `json:"committed,omitempty"` // newest step that its members could return to then
	Grow      *Growth                              `json:"grow,omitempty"`      // newcomers are ready, others may be in a moment
	Fresh     time.Time                            `json:"fresh,omitzero"`      // when a seat was last made or emptied for a new life
	Finishing bool                                 `json:"finishing,omitempty"`
	Stopping  *events.JobStopping                  `json:"stopping,omitempty"`
	Removed   time.Time                            `json:"removed,omitzero"`   // the job's record is no more; this one is to go, and is tried again then
	External  *External                            `json:"external,omitempty"` // only if the job's nodes come by themselves
	Revision  uint64                               `json:"revision"`           // of the newest launches
	Asked     events.Places                        `json:"asked,omitempty"`    // told as asked back in vain
	Links     []Pair                               `json:"links,omitempty"`    // between nodes that could not reach each other, by nodes
	Broken    [][2]int                             `json:"broken,omitempty"`   // ranks of the sealed generation whose connection broke, not yet charged
	Packed    string                               `json:"nodes,omitempty"`

	Seats     []Seat                               `json:"-"` // by place
	Seniority map[events.NodeID]events.Generation  `json:"-"`
	Agents    map[events.NodeID]events.Incarnation `json:"-"` // newest incarnation known per node
	NodeFacts map[events.NodeID]uint64             `json:"-"` // number of the last fact taken in about a node
	Told      map[events.NodeID]Told               `json:"-"`

	where map[events.NodeID]int  // rank of a node's first member in the sealed generation; nil = not looked up yet
	again map[events.NodeID]bool // nodes that are told their launch again although it has not changed
}

// Told remembers the launch that a node was last given.
type Told struct {
	Revision uint64
	Sum      uint64 // of its content without the revision
	At       time.Time
}

func (s *State) restart() bool { return s.Spec.Recovery != spec.RecoveryInProcess }
func (s *State) open() bool    { return s.View.Proposed != 0 }
func (s *State) closed() bool  { return s.View.State == events.RoundStateClosed }

func (s *State) seat(p events.Place) *Seat {
	i := s.find(p)
	if i == len(s.Seats) || s.Seats[i].Place != p {
		return nil
	}
	return &s.Seats[i]
}

// find returns where the seat of a place is, or would be.
func (s *State) find(p events.Place) int {
	return sort.Search(len(s.Seats), func(i int) bool { return !s.Seats[i].Place.Less(p) })
}

func (s *State) addSeat(p events.Place) {
	s.Seats = slices.Insert(s.Seats, s.find(p), Seat{Place: p, State: coming, Attempt: s.Attempts[p.String()] + 1})
}

// dropSeats removes the seats that gone selects and remembers how far their attempts have counted.
func (s *State) dropSeats(gone func(*Seat) bool) {
	kept := s.Seats[:0]
	for i := range s.Seats {
		x := s.Seats[i]
		if !gone(&x) {
			kept = append(kept, x)
			continue
		}
		if s.Attempts == nil {
			s.Attempts = map[string]int{}
		}
		s.Attempts[x.Place.String()] = x.Attempt
	}
	s.Seats = kept
}

// memberAt returns the seat of a rank of the sealed generation, if the same life still has it.
func (s *State) memberAt(rank int) *Seat {
	if rank < 0 || rank >= len(s.View.Members) {
		return nil
	}
	m := s.View.Members[rank]
	x := s.seat(m.Place)
	if x == nil || x.Incarnation != m.Incarnation {
		return nil
	}
	return x
}

// seatsOn returns the seats of a node; seats are in the order of their places.
func (s *State) seatsOn(n events.NodeID) []Seat {
	from := sort.Search(len(s.Seats), func(i int) bool { return s.Seats[i].Place.Node >= n })
	to := from
	for to < len(s.Seats) && s.Seats[to].Place.Node == n {
		to++
	}
	return s.Seats[from:to]
}

// firstRank returns the rank of a node's first member in the sealed generation, if it has one.
func (s *State) firstRank(n events.NodeID) (rank int, ok bool) {
	if s.where == nil {
		s.where = map[events.NodeID]int{}
		for r := range s.View.Members {
			if n := s.View.Members[r].Place.Node; r == 0 || s.View.Members[r-1].Place.Node != n {
				s.where[n] = r
			}
		}
	}
	rank, ok = s.where[n]
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

// Overtaken tells whether a later fact about a node was taken in, so that one that comes late, or a record that was read
// before, must not undo it. Unnumbered ones are of no order.
func (s State) Overtaken(n events.NodeID, number uint64) bool {
	return number != 0 && number <= s.NodeFacts[n]
}

// Missed tells whether a node has not heard its newest launch, though it has had time. An ended job matters only to nodes that
// still hold it.
func (s State) Missed(h events.Heartbeat, now time.Time) bool {
	told, ok := s.Told[h.Node]
	held, holds := h.Revisions[s.View.Job]
	// One among thousands hears late, and telling all of them again would make it later.
	wait := resendAfter * time.Duration(1+len(s.Told)/resendNodes)
	return ok && held < told.Revision && (holds || !s.closed()) && now.Sub(told.At) >= wait
}

// Lacks tells whether it is news to the job that a node lives with this agent, or that its connection is gone or back.
func (s State) Lacks(n events.NodeFact) bool {
	if s.External != nil || n.Disconnected || s.Cut[n.Node] != "" || s.Agents[n.Node] > n.Incarnation {
		return true
	}
	return slices.ContainsFunc(s.seatsOn(n.Node), func(x Seat) bool {
		return x.State == lost || x.State == dead || x.State == blamed || (x.Agent != "" && x.Agent != n.Incarnation)
	})
}

// Concerns tells whether what happens to a node matters to this job.
func (s State) Concerns(n events.NodeID) bool {
	if s.closed() {
		return false
	}
	if s.Hosts(n) || s.misses(n) {
		return true
	}
	_, told := s.Told[n]
	return told || len(s.seatsOn(n)) > 0
}
