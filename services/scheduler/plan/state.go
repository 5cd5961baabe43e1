package plan

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/leases"
	"github.com/regroup-io/regroup/events/spec"
)

const (
	endedJobsKept = 1024 // ids of ended jobs that are kept
	// maxJobs bounds the pool so that its document fits into its bucket. Jobs submitted beyond it
	// stay in the registry's records and are added, in order, when the scheduler reconciles with
	// them.
	maxJobs       = 20_000
	lostNodesKept = 1024 // gone nodes whose last number is kept
)

// State is the pool. Its view is public: a row for every job that has not ended.
type State struct {
	View events.PoolView `json:"view"`
	// In order of submission; only those that Order does not cover are stored.
	Queue []Job                 `json:"queue,omitempty"`
	Order string                `json:"order,omitempty"` // see Pack
	Nodes map[ident.NodeID]Node `json:"nodes,omitempty"`
	Ended []ident.JobID         `json:"ended,omitempty"` // oldest first

	dirty   bool                 // slots must be assigned again
	lost    lostNodes            // in this step
	touched map[ident.JobID]bool // jobs whose wait reason must be updated
	index   map[ident.JobID]int  // of Queue; nil = not built
}

// Job is the record of a job besides its row in the view.
type Job struct {
	ID               ident.JobID  `json:"id"`
	Submitted        bool         `json:"submitted,omitempty"`   // false: only a later fact has arrived so far
	Restart          bool         `json:"restart,omitempty"`     // it recovers by restart: below its min it has no processes
	MultipleOf       int          `json:"multiple_of,omitempty"` // it trains with multiples of so many workers; 0 = any number
	GPU              *spec.GPU    `json:"gpu,omitempty"`         // that each worker needs for itself; nil = none
	Placed           bool         `json:"placed,omitempty"`      // it has got its gang, and keeps what it has
	Returning        bool         `json:"returning,omitempty"`   // it is below its min since places were lost that may be back soon
	PublishedWorkers spec.Workers `json:"published_workers"`     // as in the last placement.set
	Workers          uint64       `json:"workers,omitempty"`     // number of the fact with the wanted workers
	Incident         Incident     `json:"incident,omitzero"`
}

// whole returns how many of n places are a multiple that the job trains with.
func (j *Job) whole(n int) int { return spec.Elastic{MultipleOf: j.MultipleOf}.Whole(n) }

// Incident is the newest incident of a job, whose trace gets the spans of decisions made during it.
type Incident struct {
	Count int    `json:"count,omitempty"` // number among the job's incidents
	Trace string `json:"trace,omitempty"` // of its root span, while it is open
	Lost  *Loss  `json:"lost,omitempty"`  // nodes were lost, and the fact of the resulting incident has not arrived yet
}

// Loss is a change of places because of lost nodes.
type Loss struct {
	Nodes  []ident.NodeID `json:"nodes"`
	Reason string         `json:"reason"`
	At     time.Time      `json:"at"`
}

// Node is the scheduler's record of a node.
type Node struct {
	Incarnation ident.Incarnation `json:"incarnation"`
	Slots       int               `json:"slots"`
	Number      uint64            `json:"number,omitempty"` // of the last fact
	Suspected   bool              `json:"suspected,omitempty"`
	Draining    bool              `json:"draining,omitempty"`
	Gone        Departure         `json:"gone,omitempty"`

	Excluded string `json:"excluded,omitempty"` // why it must not be used
	// Its line in the host list; earlier ones are used first.
	Order            int                      `json:"order,omitempty"`
	Quarantine       *events.Quarantine       `json:"quarantine,omitempty"`        // no new places
	QuarantinedSlots []events.QuarantinedSlot `json:"quarantined_slots,omitempty"` // these slots lose their places

	GPUs      []devices.Slots `json:"gpus,omitempty"`      // of the slots, as in the last fact
	LeaseEnds leases.Ends     `json:"lease_ends,omitzero"` // likewise
}

// Departure is how a node went away.
type Departure string

// Departures of a node.
const (
	Lost Departure = "lost" // a fault
	Left Departure = "left" // planned
)

// schedulable reports whether the node may get new places; keepsPlaces, whether it may keep them.
func (n Node) schedulable() bool { return n.keepsPlaces() && !n.Suspected && n.Quarantine == nil }
func (n Node) keepsPlaces() bool { return n.Gone == "" && !n.Draining && n.Excluded == "" }

func (n Node) quarantined(s ident.Slot) *events.Quarantine {
	for i := range n.QuarantinedSlots {
		if n.QuarantinedSlots[i].Slot == s {
			return &n.QuarantinedSlots[i].Quarantine
		}
	}
	return nil
}

// Machine assigns slots.
type Machine struct{}

// New returns an empty pool.
func (Machine) New(string) State {
	return State{View: events.PoolView{Jobs: map[ident.JobID]events.PlacementView{}}, Nodes: map[ident.NodeID]Node{}}
}

// Deadline returns no time: places change only by inputs.
func (Machine) Deadline(State) time.Time { return time.Time{} }

func (s *State) job(id ident.JobID) *Job {
	if s.index == nil {
		s.index = make(map[ident.JobID]int, len(s.Queue))
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

// Knows reports whether an input from another service's record would change nothing.
func (s State) Knows(in events.Input) bool {
	switch b := in.Body.(type) {
	case events.JobSubmitted:
		j := s.job(b.Job)
		return (j != nil && j.Submitted) || slices.Contains(s.Ended, b.Job)
	case events.JobScaled:
		j := s.job(b.Job)
		return (j != nil && in.Number != 0 && in.Number <= j.Workers) || slices.Contains(s.Ended, b.Job)
	case events.NodeEvent:
		return s.hasNodeFact(b.Fact().Node, in.Number)
	}
	return false
}

// hasNodeFact reports whether a fact about a node with this or a later number was applied.
func (s *State) hasNodeFact(id ident.NodeID, number uint64) bool {
	n, known := s.Nodes[id]
	return known && number != 0 && number <= n.Number
}

// Pack returns the stored form. For a waiting job, of which there may be ten thousand, the view has
// nearly everything; the rest is one field in Order: the number of the fact with the wanted
// workers, in base 36, after a "+" if it recovers by restart. "=" stands for the next entry of
// Queue, which has the jobs with anything more.
func (s State) Pack() State {
	order := make([]byte, 0, 2*len(s.Queue))
	var rest []Job
	for i := range s.Queue {
		j := &s.Queue[i]
		if i > 0 {
			order = append(order, ' ')
		}
		if j.queued() && *j == (Job{ID: j.ID, Submitted: true, Restart: j.Restart, Workers: j.Workers}) && s.View.Jobs[j.ID].Waiting != "" {
			if j.Restart {
				order = append(order, '+')
			}
			order = strconv.AppendUint(order, j.Workers, 36)
			continue
		}
		order, rest = append(order, '='), append(rest, *j)
	}
	s.Order, s.Queue, s.index, s.touched = string(order), rest, nil, nil
	return s
}

// queued reports whether a job waits to be placed. The view lists these in order.
func (j *Job) queued() bool { return j.Submitted && !j.Placed }

// Unpack reads the stored form.
func (s State) Unpack() (State, error) {
	words := strings.Fields(s.Order)
	queue, rest, ids := make([]Job, 0, len(words)), s.Queue, s.View.Queue
	next := func() (id ident.JobID) {
		if len(ids) > 0 {
			id, ids = ids[0], ids[1:]
		}
		return id
	}
	for _, w := range words {
		if w == "=" {
			if len(rest) == 0 {
				return s, errcode.Errorf(errcode.Invalid, "the order names more jobs than there are")
			}
			if rest[0].queued() {
				next()
			}
			queue, rest = append(queue, rest[0]), rest[1:]
			continue
		}
		w, restart := strings.CutPrefix(w, "+")
		number, err := strconv.ParseUint(w, 36, 64)
		id := next()
		if err != nil || id == "" {
			return s, errcode.Errorf(errcode.Invalid, "the order names %q, which is no job of the queue", w)
		}
		queue = append(queue, Job{ID: id, Submitted: true, Restart: restart, Workers: number})
	}
	if len(rest) > 0 {
		return s, errcode.Errorf(errcode.Invalid, "there are more jobs than the order names")
	}
	s.Queue, s.Order = queue, ""
	return s, nil
}
