package events

import (
	"maps"
	"time"

	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// Signals: plain JSON over core messaging; each may be lost.

// Signal is a signal with its subject.
type Signal struct {
	Subject string
	Body    Body
}

// CheckSubject validates that the heartbeat came on the subject of its node, on which the broker
// lets no other agent publish.
func (b Heartbeat) CheckSubject(subject string) error {
	if subject != HeartbeatSubject(b.Node) {
		return errcode.Errorf(errcode.Invalid, "a heartbeat of %s came on %s", b.Node, subject)
	}
	return nil
}

// Heartbeat shows that an agent is alive and which launches it holds.
type Heartbeat struct {
	Node        ident.NodeID           `json:"node"`
	Incarnation ident.Incarnation      `json:"incarnation"`
	Slots       int                    `json:"slots" bound:"slots"`
	Link        broker.Link            `json:"link,omitzero"`
	Revisions   map[ident.JobID]uint64 `json:"revisions,omitempty"` // newest launch revision held per job
}

// Notice reports without delay that a worker is gone or accused. The facts follow.
type Notice struct {
	Exited WorkerExited `json:"exited"`
	Rank   ident.Rank   `json:"rank"` // in Exited.Generation
}

// Progress is the newest step of a worker; 0 = it has reported none in this generation.
type Progress struct {
	Job        ident.JobID      `json:"job"`
	Place      ident.Place      `json:"place"`
	Generation ident.Generation `json:"generation"`
	Rank       ident.Rank       `json:"rank"`
	World      int              `json:"world"`
	Step       uint64           `json:"step"`
	// Consumed by the whole job so far, as far as this worker knows.
	Samples uint64             `json:"samples"`
	Metrics map[string]float64 `json:"metrics,omitempty" bound:"names"` // the newest value of each name
	// MetricSteps are the steps after which metrics were reported, if they differ from Step.
	MetricSteps map[string]uint64 `json:"metric_steps,omitempty" bound:"names"`
	Reported    map[string]Metric `json:"-"`                // set by the receiving replica: of all ranks together
	Ledger      *tables.Ledger    `json:"ledger,omitempty"` // as of the last commit, when it has changed
	Commit      *tables.Commit    `json:"commit,omitempty"`
	Slowest     *Straggler        `json:"slowest,omitempty"` // of this generation, as far as this worker knows
	// Waited is the part of its time of late, 0 to 1, in which it waited for others; nil = unknown.
	Waited *float64 `json:"waited,omitempty"`
	// Redundancy is what this worker has said last in this generation; nil = nothing.
	Redundancy *RedundancyReport `json:"redundancy,omitempty"`
	Known      *Redundancy       `json:"-"` // set by the receiving replica: the newest of the job
}

// Straggler is the rank that the others wait for. Share is the part of its time, 0 to 1, by which
// the median rank waits longer.
type Straggler struct {
	Rank  ident.Rank `json:"rank"`
	Share float64    `json:"share"`
}

// HeartbeatMissed is liveness's own observation that a node was silent for some time (not sent).
type HeartbeatMissed struct {
	Node        ident.NodeID      `json:"node"`
	Incarnation ident.Incarnation `json:"incarnation"` // the silent incarnation: its successor is not affected
	Failed      bool              `json:"failed"`      // a direct ping was not answered either
	// Silence is how long this replica has not heard it; 0 = unknown.
	Silence spec.Duration `json:"silence,omitzero"`
	// Unheard: this replica has never heard it, and Silence is only for how long it has listened.
	Unheard   bool `json:"unheard,omitempty"`
	FleetSize int  `json:"-"` // the number of nodes that this replica knows
	Several   bool `json:"-"` // there are several brokers, as far as it knows
}

// StepsStalled is the registry's own observation that a job made no step for some time (made by its
// StepTracker, not sent).
type StepsStalled struct {
	Job        ident.JobID      `json:"job"`
	Generation ident.Generation `json:"generation"`
	Step       uint64           `json:"step"` // the last one reported
	For        spec.Duration    `json:"for"`
}

// Disconnected is discovery's own observation that an agent's connection has closed (not sent).
type Disconnected struct {
	Node        ident.NodeID      `json:"node"`
	Incarnation ident.Incarnation `json:"incarnation"`
	Link        broker.Link       `json:"link"`
}

// HeartbeatSeen is discovery's own observation that a node was heard (made by liveness, not sent).
type HeartbeatSeen struct {
	Heartbeat
}

// RendezvousStatus is the progress of the rendezvous of self-registered nodes, sent to waiting
// nodes. It is only informative: what a node must do comes with its launches.
type RendezvousStatus struct {
	Job        ident.JobID `json:"job"`
	Round      int         `json:"round"`
	Complete   bool        `json:"complete"`
	Nodes      int         `json:"nodes"` // participants
	Min        int         `json:"min"`
	Max        int         `json:"max"`
	Waiting    int         `json:"waiting,omitempty"`
	Spares     int         `json:"spares,omitempty"`
	LastCallMS float64     `json:"last_call_ms,omitempty"` // remaining time
	Closed     bool        `json:"closed,omitempty"`
}

// Abandon is sent by rendezvous to agents: the generation is over, abort its collectives now.
type Abandon struct {
	Job        ident.JobID      `json:"job"`
	Generation ident.Generation `json:"generation"`
	Reason     string           `json:"reason"`
}

// NoticeEnvelope is the JSON on a job's notice subject: exactly one of the two.
type NoticeEnvelope struct {
	Notice  *Notice  `json:"notice,omitempty"`
	Abandon *Abandon `json:"abandon,omitempty"`
}

// Type makes NoticeEnvelope a Body.
func (NoticeEnvelope) Type() Type { return "dev.regroup.sig.notice-envelope.v1" }

// Metric is the newest value that a program has reported under a name.
type Metric struct {
	Value float64    `json:"value"`
	Step  uint64     `json:"step,omitempty"` // after which it was reported; 0 = unknown
	Rank  ident.Rank `json:"rank"`           // of the reporting worker
	At    time.Time  `json:"at,omitzero"`    // time of arrival on the receiver's clock
}

// MetricsOf returns the metrics of one report that arrived at a time. steps has those of values
// that are not from step.
func MetricsOf(values map[string]float64, steps map[string]uint64, step uint64, rank ident.Rank, at time.Time) map[string]Metric {
	out := make(map[string]Metric, len(values))
	for name, v := range values {
		m := Metric{Value: v, Step: step, Rank: rank, At: at}
		if s, ok := steps[name]; ok {
			m.Step = s
		}
		out[name] = m
	}
	return out
}

// MergeMetrics merges new metrics into the known ones and reports whether anything changed. Of
// several ranks the lowest counts, unless another one is at a later step. A repeated value keeps
// its time. Neither map is modified. At most limits.Names are kept, with preference for those of
// the newest report.
func MergeMetrics(known, updates map[string]Metric) (all map[string]Metric, differ bool) {
	all = known
	for name, m := range updates {
		old, have := known[name]
		switch {
		case have && m.Rank > old.Rank && m.Step <= old.Step:
			continue
		case have && m.Value == old.Value && m.Step == old.Step && m.Rank == old.Rank:
			continue
		case !differ:
			differ = true
			if all = maps.Clone(known); all == nil {
				all = make(map[string]Metric, len(updates))
			}
		}
		all[name] = m
	}
	if len(all) > limits.Names.Max {
		return maps.Clone(updates), true
	}
	return all, differ
}
