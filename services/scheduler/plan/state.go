package plan

import (
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

const (
	keepEnded = 1024 // ids of ended jobs that are remembered
	// mostJobs bounds the pool, so that its document fits into its store. What is submitted beyond stays in the registry's
	// records, and is taken in, in order, when the scheduler compares with them.
	mostJobs = 20_000
	keepGone = 1024 // nodes that are gone whose last number is remembered
)

// State is the pool. Its view is public: a row for every job that has not ended.
type State struct {
	View  events.PoolView        `json:"view"`
	Queue []Job                  `json:"queue,omitempty"` // in order of submission; stored are those of which Order does not say all
	Order string                 `json:"order,omitempty"` // see Pack
	Nodes map[events.NodeID]Node `json:"nodes,omitempty"`
	Ended []events.JobID         `json:"ended,omitempty"` // oldest first

	due     bool                  // slots are to be given out anew
	lost    []events.NodeID       // whose places are gone without warning
	touched map[events.JobID]bool // say anew why they wait
	index   map[events.JobID]int  // of Queue; nil = to be made
}

// Job is what the pool knows of a job beside its row in the view.
type Job struct {
	ID        events.JobID `json:"id"`
	Submitted bool         `json:"submitted,omitempty"` // false: only a later fact was seen so far
	Placed    bool         `json:"placed,omitempty"`    // it got its gang once, and keeps what it has
	Told      spec.Workers `json:"told"`                // as in the last placement.set
	Workers   uint64       `json:"workers,omitempty"`   // number of the fact that said how many
	Incident  Incident     `json:"incident,omitzero"`
}

// Incident is the newest incident of a job that was told, so that what is decided meanwhile is drawn in its trace.
type Incident struct {
	Count int    `json:"count,omitempty"` // which one of the job's
	Trace string `json:"trace,omitempty"` // of its root span, while it is open
	Lost  *Loss  `json:"lost,omitempty"`  // nodes were lost, and the incident that this opens is not told yet
}

// Loss is a change of places because of lost nodes.
type Loss struct {
	Nodes  []events.NodeID `json:"nodes"`
	Reason string          `json:"reason"`
	At     time.Time       `json:"at"`
}

// Node is one node.
type Node struct {
	Incarnation events.Incarnation `json:"incarnation"`
	Slots       int                `json:"slots"`
	Number      uint64             `json:"number,omitempty"` // of the last fact
	Suspected   bool               `json:"suspected,omitempty"`
	Draining    bool               `json:"draining,omitempty"`
	Gone        Gone               `json:"gone,omitempty"`

	Excluded   string                   `json:"excluded,omitempty"`   // why it may not be used
	Order      int                      `json:"order,omitempty"`      // which line of the host list names it; those before it are used first
	Quarantine *events.Quarantine       `json:"quarantine,omitempty"` // no new work
	Benched    []events.QuarantinedSlot `json:"benched,omitempty"`    // these slots keep nothing
}

// Gone says how a node went away.
type Gone string

// Ways to go.
const (
	Lost Gone = "lost" // a fault
	Left Gone = "left" // planned
)

// usable tells whether new work may go to the node; keeps, whether work may stay.
func (n Node) usable() bool { return n.keeps() && !n.Suspected && n.Quarantine == nil }
func (n Node) keeps() bool  { return n.Gone == "" && !n.Draining && n.Excluded == "" }

// benched returns the quarantine of a slot, nil if it has none.
func (n Node) benched(s events.Slot) *events.Quarantine {
	for i := range n.Benched {
		if n.Benched[i].Slot == s {
			return &n.Benched[i].Quarantine
		}
	}
	return nil
}

// sound counts the slots that are not benched.
func (n Node) sound() int {
	sound := n.Slots
	for _, b := range n.Benched {
		if int(b.Slot) < n.Slots {
			sound--
		}
	}
	return sound
}

// Machine gives out slots.
type Machine struct{}

// New returns an empty pool.
func (Machine) New(string) State {
	return State{View: events.PoolView{Jobs: map[events.JobID]events.PlacementView{}}, Nodes: map[events.NodeID]Node{}}
}

// Deadline is never: places change only because something happens, and discovery tells when a quarantine is over.
func (Machine) Deadline(State) time.Time { return time.Time{} }

func (s *State) job(id events.JobID) *Job {
	if s.index == nil {
		s.index = make(map[events.JobID]int, len(s.Queue))
		for i := range s.Queue {
			s.index[s.Queue[i].ID] = i
		}
	}
	i, ok := s.index[id]
	if !ok {
		return nil
	}
	return &s.Queue[i]
}

// Knows tells whether the pool has taken in what a judge's record says: the input would change nothing.
func (s State) Knows(in events.Input) bool {
	switch b := in.Body.(type) {
	case events.JobSubmitted:
		j := s.job(b.Job)
		return (j != nil && j.Submitted) || slices.Contains(s.Ended, b.Job)
	case events.JobScaled:
		j := s.job(b.Job)
		return (j != nil && in.Number != 0 && in.Number <= j.Workers) || slices.Contains(s.Ended, b.Job)
	case events.NodeJoined:
		return s.has(b.Node, in.Number)
	case events.NodeSuspected:
		return s.has(b.Node, in.Number)
	case events.NodeDraining:
		return s.has(b.Node, in.Number)
	case events.NodeLost:
		return s.has(b.Node, in.Number)
	case events.NodeLeft:
		return s.has(b.Node, in.Number)
	}
	return false
}

// has tells whether a fact about a node of this number or a later one was taken in.
func (s *State) has(id events.NodeID, number uint64) bool {
	n, known := s.Nodes[id]
	return known && number != 0 && number <= n.Number
}
