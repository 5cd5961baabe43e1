package view

import (
	"fmt"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/exitcode"
)

// Summary is the result of a job as one JSON object with a fixed shape, which run and demo print
// and scripts read. It is derived from the registry's view of the job only. Lists are never null.
type Summary struct {
	Job         ident.JobID         `json:"job"`
	Outcome     events.JobState     `json:"outcome"`   // the job's state; terminal unless it still runs
	ExitCode    *int                `json:"exit_code"` // of regroup itself: see package exitcode; null = it has not ended
	Seconds     float64             `json:"seconds"`   // submit to end, on the registry's clock
	Steps       uint64              `json:"steps"`
	Generations []SummaryGeneration `json:"generations"`
	Incidents   []SummaryIncident   `json:"incidents"`
	Samples     *Samples            `json:"samples"` // null: the program keeps no ledger
	// StateHash is the newest hash of the training's state, of a program that finds one.
	StateHash *tables.StateHash  `json:"state_hash,omitempty"`
	Metrics   map[string]float64 `json:"metrics"` // of the worker that completed the work, else the newest that were reported
	// Reported are the newest values that were reported, with their steps.
	Reported map[string]events.Metric `json:"reported,omitempty"`
	Dropped  uint64                   `json:"dropped,omitempty"` // lines of output that are not in the log; the gaps are marked there
}

// SummaryGeneration is one generation and its members.
type SummaryGeneration struct {
	Generation ident.Generation `json:"generation"`
	World      int              `json:"world"`
	Cause      events.CauseKind `json:"cause"`
	Members    []SummaryMember  `json:"members"` // by rank
}

// SummaryMember is one worker of a generation.
type SummaryMember struct {
	Node        ident.NodeID      `json:"node"`
	Slot        ident.Slot        `json:"slot"`
	Rank        int               `json:"rank"`
	PID         int               `json:"pid"`
	Incarnation ident.Incarnation `json:"incarnation"`
}

// SummaryIncident is one closed incident. Its phases sum to its length.
type SummaryIncident struct {
	ID        int              `json:"id"`
	Cause     events.CauseKind `json:"cause"`
	From      ident.Generation `json:"from_generation"`
	To        ident.Generation `json:"to_generation"` // 0: the job ended instead
	Phases    events.Phases    `json:"phases_ms"`
	TotalMS   float64          `json:"total_ms"`
	StepsLost *uint64          `json:"steps_lost"`         // null: unknown
	AtLeast   bool             `json:"at_least,omitempty"` // StepsLost is a lower bound
	Started   bool             `json:"started,omitempty"`  // it ends with the start of the processes, because no step was reported
	TraceID   string           `json:"trace_id"`
	SilenceMS float64          `json:"silence_ms,omitempty"` // before it, for which nobody had observed a step
	Unknown   bool             `json:"silence_unknown,omitempty"`
}

// Summarize returns the summary of a job; now is the end of a job that has not ended.
func Summarize(v events.JobView, now time.Time) Summary {
	s := Summary{
		Job: v.Job, Outcome: v.State, Steps: v.Step,
		Seconds:     Lifetime(v, now).Seconds(),
		Generations: make([]SummaryGeneration, 0, len(v.Generations)),
		Incidents:   make([]SummaryIncident, 0, len(v.Incidents)),
		Samples:     SamplesOf(v.Ledger),
		StateHash:   v.StateHash,
		Metrics:     v.Metrics,
		Reported:    v.Reported,
		Dropped:     v.Dropped,
	}
	if v.State.Terminal() {
		s.ExitCode = new(exitcode.OfJob(v.State, v.Code))
	}
	if s.Metrics == nil {
		s.Metrics = map[string]float64{}
		for name, m := range v.Reported {
			s.Metrics[name] = m.Value
		}
	}
	pids := pidsOf(v)
	for _, g := range v.Generations {
		out := SummaryGeneration{Generation: g.Generation, World: g.World, Cause: g.Cause.Kind, Members: make([]SummaryMember, 0, len(g.Members))}
		for _, m := range g.Members {
			pid := m.PID
			if pid == 0 {
				pid = pids[m.Incarnation]
			}
			out.Members = append(out.Members, SummaryMember{m.Place.Node, m.Place.Slot, int(m.Rank), pid, m.Incarnation})
		}
		s.Generations = append(s.Generations, out)
	}
	for _, i := range v.Incidents {
		s.Incidents = append(s.Incidents, SummaryIncident{
			ID: i.Incident, Cause: i.Cause.Kind, From: i.From, To: i.To, Phases: i.Phases,
			TotalMS: i.TotalMS, StepsLost: i.StepsLost, AtLeast: i.AtLeast, Started: i.Started, TraceID: i.TraceID, SilenceMS: i.SilenceMS, Unknown: i.SilenceUnknown,
		})
	}
	return s
}

// pidsOf maps incarnations to process ids: with restart recovery a member is sealed before its
// process exists.
func pidsOf(v events.JobView) map[ident.Incarnation]int {
	out := map[ident.Incarnation]int{}
	for _, w := range v.Workers {
		if w.PID != 0 {
			out[w.Incarnation] = w.PID
		}
	}
	return out
}

// Lifetime is the time from submit to the end, or to now.
func Lifetime(v events.JobView, now time.Time) time.Duration {
	end := v.Ended
	if end.IsZero() {
		end = now
	}
	return max(0, end.Sub(v.Submitted))
}

// StepsLost describes how many steps were lost by faults: a number, "at least" a number, or
// "unknown".
func (s Summary) StepsLost() string {
	n, exact := uint64(0), true
	for _, i := range s.Incidents {
		exact = exact && i.StepsLost != nil && !i.AtLeast
		if i.StepsLost != nil {
			n += *i.StepsLost
		}
	}
	switch {
	case exact:
		return fmt.Sprint(n)
	case n == 0:
		return "unknown"
	}
	return fmt.Sprintf("at least %d", n)
}

// Err returns the error with which a command ends that waited for the job; nil = it succeeded.
func (s Summary) Err() error {
	switch {
	case s.ExitCode == nil: // it has not ended
		return &exitcode.Error{Code: exitcode.Unexpected}
	case *s.ExitCode == exitcode.OK:
		return nil
	}
	return &exitcode.Error{Code: *s.ExitCode}
}

// Failures counts the incidents that were not planned.
func (s Summary) Failures() (n int) {
	for _, i := range s.Incidents {
		if !i.Cause.Planned() {
			n++
		}
	}
	return n
}
