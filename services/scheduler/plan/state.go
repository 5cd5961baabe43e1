package plan

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

const (
	endedJobsKept = 1024 // ids of ended jobs that are remembered
	// mostJobs bounds the pool, so that its document fits into its store. What is submitted beyond
	// stays in the registry's records, and is taken in, in order, when the scheduler compares with
	// them.
	maxJobs       = 20_000
	goneNodesKept = 1024 // nodes that are gone whose last number is remembered
)

// State is the pool. Its view is public: a row for every job that has not ended.
type State struct {
	View  events.PoolView        `json:"view"`
	Queue []Job                  `json:"queue,omitempty"` // in order of submission; stored are those of which Order does not say all
	Order string                 `json:"order,omitempty"` // see Pack
	Nodes map[events.NodeID]Node `json:"nodes,omitempty"`
	Ended []events.JobID         `json:"ended,omitempty"` // oldest first

	dirty   bool                  // slots are to be given out anew
	lost    []events.NodeID       // whose places are gone without warning
	touched map[events.JobID]bool // say anew why they wait
	index   map[events.JobID]int  // of Queue; nil = to be made
}

// Job is what the pool knows of a job beside its row in the view.
type Job struct {
	ID               events.JobID `json:"id"`
	Submitted        bool         `json:"submitted,omitempty"` // false: only a later fact was seen so far
	Placed           bool         `json:"placed,omitempty"`    // it got its gang once, and keeps what it has
	PublishedWorkers spec.Workers `json:"told"`                // as in the last placement.set
	Workers          uint64       `json:"workers,omitempty"`   // number of the fact that said how many
	Incident         Incident     `json:"incident,omitzero"`
}

// Incident is the newest incident of a job that was told, so that what is decided meanwhile is
// drawn in its trace.
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
	Gone        Departure          `json:"gone,omitempty"`

	Excluded         string                   `json:"excluded,omitempty"`   // why it may not be used
	Order            int                      `json:"order,omitempty"`      // which line of the host list names it; those before it are used first
	Quarantine       *events.Quarantine       `json:"quarantine,omitempty"` // no new work
	QuarantinedSlots []events.QuarantinedSlot `json:"benched,omitempty"`    // these slots keep nothing
}

// Departure says how a node went away.
type Departure string

// Ways to go.
const (
	Lost Departure = "lost" // a fault
	Left Departure = "left" // planned
)

// schedulable tells whether new work may go to the node; keeps, whether work may stay.
func (n Node) schedulable() bool { return n.keepsPlaces() && !n.Suspected && n.Quarantine == nil }
func (n Node) keepsPlaces() bool { return n.Gone == "" && !n.Draining && n.Excluded == "" }

// quarantined returns the quarantine of a slot, nil if it has none.
func (n Node) quarantined(s events.Slot) *events.Quarantine {
	for i := range n.QuarantinedSlots {
		if n.QuarantinedSlots[i].Slot == s {
			return &n.QuarantinedSlots[i].Quarantine
		}
	}
	return nil
}

// healthySlots counts the slots that are not benched.
func (n Node) healthySlots() int {
	sound := n.Slots
	for _, b := range n.QuarantinedSlots {
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

// Deadline is never: places change only because something happens, and discovery tells when a
// quarantine is over.
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

// Knows tells whether the pool has taken in what a judge's record says: the input would change
// nothing.
func (s State) Knows(in events.Input) bool {
	switch b := in.Body.(type) {
	case events.JobSubmitted:
		j := s.job(b.Job)
		return (j != nil && j.Submitted) || slices.Contains(s.Ended, b.Job)
	case events.JobScaled:
		j := s.job(b.Job)
		return (j != nil && in.Number != 0 && in.Number <= j.Workers) || slices.Contains(s.Ended, b.Job)
	case events.NodeJoined:
		return s.hasNodeFact(b.Node, in.Number)
	case events.NodeSuspected:
		return s.hasNodeFact(b.Node, in.Number)
	case events.NodeDraining:
		return s.hasNodeFact(b.Node, in.Number)
	case events.NodeLost:
		return s.hasNodeFact(b.Node, in.Number)
	case events.NodeLeft:
		return s.hasNodeFact(b.Node, in.Number)
	}
	return false
}

// hasNodeFact tells whether a fact about a node of this number or a later one was taken in.
func (s *State) hasNodeFact(id events.NodeID, number uint64) bool {
	n, known := s.Nodes[id]
	return known && number != 0 && number <= n.Number
}

// Pack makes the stored form. Of a job that waits, as ten thousand may, the view says nearly all;
// what is left is one word in Order: the number of the fact that said how many workers it wants, in
// base 36. "=" stands for the next one of Queue.
func (s State) Pack() State {
	order := make([]byte, 0, 2*len(s.Queue))
	var rest []Job
	for i := range s.Queue {
		j := &s.Queue[i]
		if i > 0 {
			order = append(order, ' ')
		}
		if j.queued() && *j == (Job{ID: j.ID, Submitted: true, Workers: j.Workers}) && s.View.Jobs[j.ID].Waiting != "" {
			order = strconv.AppendUint(order, j.Workers, 36)
			continue
		}
		order, rest = append(order, '='), append(rest, *j)
	}
	s.Order, s.Queue, s.index, s.touched = string(order), rest, nil, nil
	return s
}

// queued tells whether a job waits to be placed: those are listed in the view, in order.
func (j *Job) queued() bool { return j.Submitted && !j.Placed }

// Unpack reads the stored form, also that of a version that stored all of every job.
func (s State) Unpack() (State, error) {
	if s.Order == "" {
		if s.View.Queue = nil; len(s.Queue) > 0 {
			for i := range s.Queue {
				if j := &s.Queue[i]; j.queued() {
					s.View.Queue = append(s.View.Queue, j.ID)
				}
			}
		}
		return s, nil
	}
	words := strings.Fields(s.Order)
	queue, rest, ids := make([]Job, 0, len(words)), s.Queue, s.View.Queue
	next := func() (id events.JobID) {
		if len(ids) > 0 {
			id, ids = ids[0], ids[1:]
		}
		return id
	}
	for _, w := range words {
		if w == "=" {
			if len(rest) == 0 {
				return s, events.Errorf(events.Invalid, "the order names more jobs than there are")
			}
			if rest[0].queued() {
				next()
			}
			queue, rest = append(queue, rest[0]), rest[1:]
			continue
		}
		number, err := strconv.ParseUint(w, 36, 64)
		id := next()
		if err != nil || id == "" {
			return s, events.Errorf(events.Invalid, "the order names %q, which is no job of the queue", w)
		}
		queue = append(queue, Job{ID: id, Submitted: true, Workers: number})
	}
	s.Queue, s.Order = queue, ""
	return s, nil
}
