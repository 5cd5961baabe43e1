package events

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/columns"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/figures"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/leases"
	"github.com/regroup-io/regroup/events/spares"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// Views are the public parts of the services' documents.

// NodeState is discovery's state of a node.
type NodeState string

// Node states.
const (
	NodeStateReady     NodeState = "ready"
	NodeStateSuspected NodeState = "suspected"
	NodeStateLost      NodeState = "lost"
	NodeStateLeft      NodeState = "left"
)

// NodeView is a document of the nodes bucket.
type NodeView struct {
	Node        ident.NodeID      `json:"node"`
	Incarnation ident.Incarnation `json:"incarnation"`
	State       NodeState         `json:"state"`
	// Disconnected: suspected because the agent's connection has closed, not because of silence.
	Disconnected bool        `json:"disconnected,omitempty"`
	Link         broker.Link `json:"link,omitzero"` // newest known connection of the agent
	Draining     bool        `json:"draining,omitempty"`
	Departing    *Departure  `json:"departing,omitempty"` // announced by this incarnation of the agent
	// LeftIncarnations are the newest previous incarnations with a planned end, oldest first.
	LeftIncarnations []ident.Incarnation `json:"left_incarnations,omitempty"`
	Slots            int                 `json:"slots"` // of the agent
	Address          string              `json:"address"`
	Version          string              `json:"version,omitempty"` // of the agent's program
	GPUs             []devices.GPU       `json:"gpus,omitempty"`
	Preflight        *figures.Preflight  `json:"preflight,omitempty"` // newest figures of these GPUs
	Spares           []spares.Kept       `json:"spares,omitempty"`    // of jobs, as of the agent's last hello
	Reason           string              `json:"reason"`
	Since            time.Time           `json:"since"`

	Cap              *int              `json:"cap,omitempty"`               // limit on the slots used, from the host list; nil = all
	Excluded         string            `json:"excluded,omitempty"`          // why it must not be used at all; empty = it may
	Order            int               `json:"order,omitempty"`             // its line in the host list, from 1; 0 = none
	Quarantine       *Quarantine       `json:"quarantine,omitempty"`        // of the whole node
	QuarantinedSlots []QuarantinedSlot `json:"quarantined_slots,omitempty"` // by slot

	LeaseEnds leases.Ends `json:"lease_ends,omitzero"` // see NodeFact
	// TimesLost is how often this incarnation of the agent was declared lost. An agent that learns
	// of one ends the processes that it had before.
	TimesLost uint64 `json:"times_lost,omitempty"`
}

// HasSlotGPUs reports whether each slot has a GPU of its own.
func (n NodeView) HasSlotGPUs() bool { return n.Slots > 0 && len(n.GPUs) == n.Slots }

// Schedulable reports whether new work may go to the node.
func (n NodeView) Schedulable() bool {
	return n.State == NodeStateReady && !n.Draining && n.Excluded == "" && n.Quarantine == nil
}

// PlacementView is one job's row in the pool.
type PlacementView struct {
	Places  ident.Places `json:"places"`
	Workers spec.Workers `json:"workers"`
	Waiting string       `json:"waiting,omitempty"` // why not placed, or why fewer than wanted
}

// RoundState is the state of a job's rendezvous.
type RoundState string

// Round states.
const (
	RoundStateOpen     RoundState = "open"     // awaited members are missing
	RoundStateSettling RoundState = "settling" // min is reached, waiting last_call or rejoin_within for the rest
	RoundStateSealed   RoundState = "sealed"
	RoundStateClosed   RoundState = "closed"
)

// RoundView is a document of the rounds bucket.
type RoundView struct {
	Job        ident.JobID        `json:"job"`
	State      RoundState         `json:"state"`
	Generation ident.Generation   `json:"generation"`         // the last sealed one; 0 = none
	Proposed   ident.Generation   `json:"proposed,omitempty"` // the open round's
	Members    tables.MemberTable `json:"members,omitempty"`  // of Generation, by rank
	Joined     ident.Places       `json:"joined,omitempty"`   // have joined for Proposed, or prefetch the state
	Expected   ident.Places       `json:"expected,omitempty"` // of Proposed
	Until      time.Time          `json:"until,omitzero"`     // end of the wait for expected members; zero = no end yet
	Cause      Cause              `json:"cause"`
	// EndingNodes are the nodes with processes of Generation that may still run, until Until at the
	// latest: the next generation waits for their end.
	EndingNodes []ident.NodeID `json:"ending_nodes,omitempty"`

	LinkPartitions []LinkPartition `json:"link_partitions,omitempty"` // by nodes

	// Consecutive generations before Generation that were lost to faults without progress.
	NoProgress int `json:"no_progress,omitempty"`

	Rendezvous *RendezvousView `json:"rendezvous,omitempty"` // only for jobs with self-registered nodes
}

// LinkPartition is a pair of nodes that could not reach each other in several generations.
type LinkPartition struct {
	Nodes    [2]ident.NodeID `json:"nodes"`    // sorted
	Excluded ident.NodeID    `json:"excluded"` // the node whose workers are excluded; empty = neither, too few would be left
	Until    time.Time       `json:"until"`    // when it is readmitted, to see whether the link works again
}

// RendezvousView is the rendezvous of self-registered nodes. Each node is in one of three lists.
type RendezvousView struct {
	RendezvousStatus
	Participants []ident.NodeID `json:"participants"` // in order of arrival
	WaitList     []ident.NodeID `json:"wait_list,omitempty"`
	SpareList    []ident.NodeID `json:"spare_list,omitempty"`
	LastCall     time.Time      `json:"last_call,omitzero"`  // end of the last call, on the rendezvous' clock
	Placed       []ident.NodeID `json:"placed,omitempty"`    // whose slots are the job's places now
	Abandoned    bool           `json:"abandoned,omitempty"` // closed because no node participated for too long
}

// JobState is the registry's state of a job.
type JobState string

// Job states; the last three are terminal.
const (
	JobStateWaiting   JobState = "waiting" // not placed, or its first generation is not sealed
	JobStateRunning   JobState = "running"
	JobStateFinishing JobState = "finishing" // a worker is done
	JobStateStopping  JobState = "stopping"
	JobStateSucceeded JobState = "succeeded"
	JobStateFailed    JobState = "failed"
	JobStateStopped   JobState = "stopped"
)

// Terminal reports whether the state is final.
func (s JobState) Terminal() bool {
	return s == JobStateSucceeded || s == JobStateFailed || s == JobStateStopped
}

// GenerationView is one generation in a job's history.
type GenerationView struct {
	Generation ident.Generation   `json:"generation"`
	World      int                `json:"world"`
	Cause      Cause              `json:"cause"`
	Sealed     time.Time          `json:"sealed"`
	Ready      bool               `json:"ready"` // it made a good step
	Reported   Reported           `json:"reported"`
	Members    tables.MemberTable `json:"members"`
}

// Reported counts the members of a generation by their newest report, like Horovod's worker
// registry. The others have reported nothing yet; no decision waits for them.
type Reported struct {
	Ready   int `json:"ready"`   // has made a good step and still runs
	Success int `json:"success"` // has exited successfully
	Failure int `json:"failure"` // has failed or was lost
}

// CountedFailure is a failure that counts against the budget.
type CountedFailure struct {
	At         time.Time         `json:"at"`
	Place      *ident.Place      `json:"place,omitempty"`  // nil = of the whole job: it stalled, and all members rejoined
	Worker     ident.Incarnation `json:"worker,omitempty"` // its incarnation
	Generation ident.Generation  `json:"generation"`
	Rank       ident.Rank        `json:"rank"` // in Generation
	Step       uint64            `json:"step"` // newest step that the generation could return to; 0 = none, or the program reports none
	Kind       FailureKind       `json:"kind"`
	Detail     string            `json:"detail"`
	Poison     bool              `json:"poison,omitempty"` // the data or the code may be the cause: it counts for failures.sameStep
}

// FailuresWithin returns the number of failures in the budget's window at a time; Failures has
// those at the time of the last one.
func (v JobView) FailuresWithin(now time.Time) int {
	n := 0
	for _, at := range v.Failures {
		if at.After(now.Add(-v.Spec.Failures.Per.D())) {
			n++
		}
	}
	return n
}

// SameStep returns how many consecutive failures, the newest ones that the data or the code may
// have caused, were at one step, and that step.
func SameStep(failures []CountedFailure) (n int, step uint64) {
	for i := len(failures) - 1; i >= 0; i-- {
		switch c := failures[i]; {
		case !c.Poison:
		case n == 0:
			n, step = 1, c.Step
		case c.Step != step:
			return n, step
		default:
			n++
		}
	}
	return n, step
}

// JobView is a document of the jobs bucket.
type JobView struct {
	Job             ident.JobID        `json:"job"`
	Spec            spec.Job           `json:"spec"`
	By              string             `json:"by"`
	Origin          string             `json:"origin,omitempty"` // of the event that submitted it
	State           JobState           `json:"state"`
	Reason          string             `json:"reason,omitempty"` // why it waits or how it ended
	Code            errcode.Code       `json:"code,omitempty"`
	Submitted       time.Time          `json:"submitted"`
	Ended           time.Time          `json:"ended,omitzero"`
	Generation      ident.Generation   `json:"generation"`
	Workers         tables.WorkerTable `json:"workers"` // by place: the newest incarnation of each
	Generations     []GenerationView   `json:"generations"`
	Incidents       []IncidentClosed   `json:"incidents"`
	OpenIncident    *IncidentOpened    `json:"open_incident,omitempty"`
	Failures        []time.Time        `json:"failures,omitempty"`         // counted within the window
	CountedFailures []CountedFailure   `json:"counted_failures,omitempty"` // the newest counted failures, oldest first
	Step            uint64             `json:"step"`                       // newest one in a fact or, at most every 5 s, in a signal
	StepAt          time.Time          `json:"step_at,omitzero"`           // when it was stored
	// Spent without a step by generations that were lost since the last good one.
	TimeWithoutStep spec.Duration `json:"time_without_step,omitempty"`
	// Of Generation, from the same signal as Step; nil = the ranks are about equally fast.
	Slowest    *Straggler         `json:"slowest,omitempty"`
	Redundancy *Redundancy        `json:"redundancy,omitempty"` // until the job ends; nil = nothing was reported
	Ledger     tables.Ledger      `json:"ledger"`
	StateHash  *tables.StateHash  `json:"state_hash,omitempty"`  // the newest; nil = the program has found none
	Metrics    map[string]float64 `json:"metrics,omitempty"`     // of the worker that reported the work complete
	Reported   map[string]Metric  `json:"reported,omitempty"`    // the newest reported values, stored with Step
	Dropped    uint64             `json:"dropped,omitempty"`     // lines of ended workers' output that are not in the log
	FirstError *tables.WorkerView `json:"first_error,omitempty"` // the earliest failure of its generation
}

// EndWorkers sets the workers of an ended job that have not ended to stopped, with a detail.
func (v *JobView) EndWorkers(detail string) {
	for i := range v.Workers {
		if w := &v.Workers[i]; !w.State.Ended() {
			w.State, w.Detail = tables.WorkerStateStopped, detail
		}
	}
}

// StillRunning is the detail of a worker that had not ended when its job did. Its agent stops it,
// and its exit replaces the detail.
const StillRunning = "still ran when the job ended"

// ExitsMissing reports whether a job has ended before the exits of some of its workers are known.
func (v JobView) ExitsMissing() bool {
	return v.State.Terminal() && slices.ContainsFunc(v.Workers, func(w tables.WorkerView) bool { return w.Detail == StillRunning })
}

// SubmittedBy reports whether an event submitted this job.
func (v JobView) SubmittedBy(source, id string) bool {
	return v.Origin == ident.Origin(source, id)
}

// JobHead is the part of a JobView that other services read, without its thousands of workers.
type JobHead struct {
	Job          ident.JobID      `json:"job"`
	Spec         spec.Job         `json:"spec"`
	By           string           `json:"by"`
	State        JobState         `json:"state"`
	Reason       string           `json:"reason"`
	Code         errcode.Code     `json:"code"`
	Submitted    time.Time        `json:"submitted"`
	Incidents    []IncidentClosed `json:"incidents"`
	OpenIncident *IncidentOpened  `json:"open_incident"`
}

// PoolView is the scheduler's only document. The queue is stored as a table, because it may have
// tens of thousands of jobs.
type PoolView struct {
	Jobs  map[ident.JobID]PlacementView // every job that has not ended
	Queue []ident.JobID                 // those that wait to be placed, in order of service

	Head      ident.JobID // the queued job that blocks the others; empty = none
	Capacity  string      // a sentence: what is free and what must not be used
	MaxSlots  int         // slots that a job could ever get with the present nodes
	GPUQueues []GPUQueue  // the same of jobs that ask for GPUs, by what they ask for
}

// GPUQueue is what jobs wait for that ask for the same GPUs, as in PoolView.
type GPUQueue struct {
	GPU      spec.GPU    `json:"gpu"`
	Head     ident.JobID `json:"head,omitempty"`
	Capacity string      `json:"capacity,omitempty"`
	MaxSlots int         `json:"max_slots,omitempty"`
}

// poolJSON is the stored form: the queue is a table of columns.
type poolJSON struct {
	Jobs     map[ident.JobID]PlacementView `json:"jobs"` // without those of the queue
	Queue    columns.Texts                 `json:"queue,omitempty"`
	Min      columns.Column[int]           `json:"min,omitempty"`
	Max      columns.Column[int]           `json:"max,omitempty"`
	Waiting  columns.Runs                  `json:"waiting,omitzero"`
	Head     ident.JobID                   `json:"head,omitempty"`
	Capacity string                        `json:"capacity,omitempty"`
	MaxSlots int                           `json:"max_slots,omitempty"`
	GPUs     []GPUQueue                    `json:"gpu_queues,omitempty"`
}

// MarshalJSON encodes the stored form.
func (p PoolView) MarshalJSON() ([]byte, error) {
	queue := slices.DeleteFunc(slices.Clone(p.Queue), func(id ident.JobID) bool {
		row, ok := p.Jobs[id]
		return !ok || len(row.Places) > 0
	})
	row, n := func(i int) PlacementView { return p.Jobs[queue[i]] }, len(queue)
	out := poolJSON{
		Jobs:    maps.Clone(p.Jobs),
		Queue:   columns.MakeTexts(n, func(i int) ident.JobID { return queue[i] }),
		Min:     columns.Make(n, func(i int) int { return row(i).Workers.Min }),
		Max:     columns.Make(n, func(i int) int { return row(i).Workers.Max }),
		Waiting: columns.MakeRuns(n, func(i int) string { return row(i).Waiting }),
		Head:    p.Head, Capacity: p.Capacity, MaxSlots: p.MaxSlots, GPUs: p.GPUQueues,
	}
	for _, id := range queue {
		delete(out.Jobs, id)
	}
	return json.Marshal(out)
}

// UnmarshalJSON decodes the stored form.
func (p *PoolView) UnmarshalJSON(b []byte) error {
	var in poolJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*p = PoolView{Jobs: in.Jobs, Head: in.Head, Capacity: in.Capacity, MaxSlots: in.MaxSlots, GPUQueues: in.GPUs}
	if p.Jobs == nil {
		p.Jobs = map[ident.JobID]PlacementView{}
	}
	n := in.Queue.Len()
	queue, err := columns.Split[ident.JobID](in.Queue, n)
	waiting, wrong := columns.Expand[string](in.Waiting, n)
	if err = cmp.Or(err, wrong, columns.Check(n, in.Min, in.Max)); err != nil {
		return errcode.Errorf(errcode.Invalid, "queue: %w", err)
	}
	p.Queue = queue
	for i, id := range queue {
		p.Jobs[id] = PlacementView{Workers: spec.Workers{Min: in.Min.At(i), Max: in.Max.At(i)}, Waiting: waiting.At(i)}
	}
	return nil
}

// UnmarshalJSON decodes a view and sets the job's id of its workers.
func (v *JobView) UnmarshalJSON(b []byte) error {
	type plain JobView
	if err := json.Unmarshal(b, (*plain)(v)); err != nil {
		return err
	}
	for i := range v.Workers {
		v.Workers[i].Job = v.Job
	}
	return nil
}
