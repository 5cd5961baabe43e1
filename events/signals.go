package events

import "github.com/regroup-io/regroup/events/spec"

// Signals: plain JSON over core messaging; each may be lost.

// Signal is a signal with the subject it goes to.
type Signal struct {
	Subject string
	Body    Body
}

// Heartbeat says that an agent lives and which launches it holds.
type Heartbeat struct {
	Node        NodeID           `json:"node"`
	Incarnation Incarnation      `json:"incarnation"`
	Slots       int              `json:"slots" bound:"slots"`
	Link        Link             `json:"link,omitzero"`
	Revisions   map[JobID]uint64 `json:"revisions,omitempty"` // newest launch revision held per job
}

// Notice says at once, without any store, that a worker is gone or accused. The facts follow.
type Notice struct {
	Exited WorkerExited `json:"exited"`
	Rank   int          `json:"rank"` // in Exited.Generation; -1 = none
}

// Progress is the newest step of a worker.
type Progress struct {
	Job        JobID              `json:"job"`
	Place      Place              `json:"place"`
	Generation Generation         `json:"generation"`
	Rank       int                `json:"rank"`
	World      int                `json:"world"`
	Step       uint64             `json:"step"`
	Samples    uint64             `json:"samples"`                         // consumed by the whole job so far, as this worker knows it
	Metrics    map[string]float64 `json:"metrics,omitempty" bound:"names"` // the newest value of each name
	// MetricSteps are the steps after which those of them were reported that are not of Step.
	MetricSteps map[string]uint64 `json:"metric_steps,omitempty" bound:"names"`
	Reported    map[string]Metric `json:"-"`                // put there by the replica that hears it: of all ranks together
	Ledger      *Ledger           `json:"ledger,omitempty"` // as of the last commit, when it has changed
	Commit      *Commit           `json:"commit,omitempty"`
	Slowest     *Straggler        `json:"slowest,omitempty"` // of this generation, as this worker knows it
}

// Straggler is the rank that the others wait for, and by which share of its time, 0 to 1, the median rank waits longer.
type Straggler struct {
	Rank  int     `json:"rank"`
	Share float64 `json:"share"`
}

// HeartbeatMissed is discovery's own observation that a node was not heard for some time (made by liveness, not sent).
type HeartbeatMissed struct {
	Node        NodeID      `json:"node"`
	Incarnation Incarnation `json:"incarnation"` // which life was silent: its successor does not pay for it
	Failed      bool        `json:"failed"`      // a direct ping got no answer either
}

// StepsStalled is the registry's own observation that a job made no step for some time (made by its ages, not sent).
type StepsStalled struct {
	Job        JobID         `json:"job"`
	Generation Generation    `json:"generation"`
	Step       uint64        `json:"step"` // the last one heard of
	For        spec.Duration `json:"for"`
}

// Disconnected is discovery's own observation that the broker saw an agent's connection end (made by discovery, not sent).
type Disconnected struct {
	Node        NodeID      `json:"node"`
	Incarnation Incarnation `json:"incarnation"`
	Link        Link        `json:"link"`
}

// HeartbeatSeen is discovery's own observation that a node was heard (made by liveness, not sent).
type HeartbeatSeen struct {
	Heartbeat
}

// RendezvousStatus is how far the rendezvous of nodes that come by themselves is, told to those who wait. It is for people: what
// a node must do comes with its launches.
type RendezvousStatus struct {
	Job        JobID   `json:"job"`
	Round      int     `json:"round"`
	Complete   bool    `json:"complete"`
	Nodes      int     `json:"nodes"` // participants
	Min        int     `json:"min"`
	Max        int     `json:"max"`
	Waiting    int     `json:"waiting,omitempty"`
	Spares     int     `json:"spares,omitempty"`
	LastCallMS float64 `json:"last_call_ms,omitempty"` // what is left of it
	Closed     bool    `json:"closed,omitempty"`
}

// Abandon is sent by rendezvous to agents: generation is over, abort its collectives now.
type Abandon struct {
	Job        JobID      `json:"job"`
	Generation Generation `json:"generation"`
	Reason     string     `json:"reason"`
}

// NoticeEnvelope is the JSON on a job's notice subject: exactly one of the two.
type NoticeEnvelope struct {
	Notice  *Notice  `json:"notice,omitempty"`
	Abandon *Abandon `json:"abandon,omitempty"`
}

// Type makes NoticeEnvelope a Body.
func (NoticeEnvelope) Type() Type { return "dev.regroup.sig.notice-envelope.v1" }
