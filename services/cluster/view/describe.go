package view

import (
	"fmt"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/english"
)

// Describe describes a fact in one sentence, without its type and entity.
func Describe(b events.Body) string {
	switch b := b.(type) {
	case events.JobSubmitted:
		return fmt.Sprintf("%s%s: %s (by %s)", WorkersText(b.Spec.Workers), b.Spec.GPU.With(), strings.Join(b.Spec.Command, " "), b.By)
	case events.JobRejected:
		return fieldErrorsText(b.Errors)
	case events.JobScaled:
		return "to " + WorkersText(b.Workers)
	case events.JobFailureCounted:
		return CountedFailureText(events.CountedFailure{Place: &b.Place, Generation: b.Generation, Rank: b.Rank, Step: b.Step, Kind: b.Kind, Detail: b.Detail})
	case events.JobStalled:
		return fmt.Sprintf("%s: %s", b.Generation, b.Detail)
	case events.JobProgressed:
		return progressText(b)
	case events.JobRespawned:
		return fmt.Sprintf("%s starts again (attempt %d)", b.Place, b.Attempt)
	case events.JobDelayed:
		return fmt.Sprintf("%s %s: it died soon after its start", b.Place, WaitText(b.WaitMS, b.Attempts))
	case events.JobRespawnDenied:
		return fmt.Sprintf("%s stays empty: %s", b.Place, b.Reason)
	case events.JobFinishing:
		return "a worker has completed the training"
	case events.JobRemoved:
		return "its record was removed by " + b.By
	case events.JobStopping:
		return b.Reason
	case events.JobSucceeded:
		return b.Reason
	case events.JobFailed:
		return b.Reason
	case events.JobStopped:
		return b.Reason
	case events.PlacementSet:
		return fmt.Sprintf("%s: %s", placesText(b.Places), b.Reason)
	case events.PlacementWaiting:
		return b.Reason
	case events.PlacementReleased:
		return "its places are free"
	case events.RoundOpened:
		return fmt.Sprintf("%s expects %s (%s)", b.Proposed, placesText(b.Expected), CauseText(b.Cause))
	case events.RoundDelayed:
		return fmt.Sprintf("%s %s: %s in a row were lost without progress", b.Proposed, WaitText(b.WaitMS, b.Attempts), english.Plural(b.NoProgress, "generation"))
	case events.RoundMissed:
		if len(b.Missing) == 0 {
			return fmt.Sprintf("%s: all members have rejoined", b.Proposed)
		}
		return fmt.Sprintf("%s misses %s", b.Proposed, membersText(b.Missing))
	case events.RoundSealed:
		return fmt.Sprintf("%s has %s (%s)", b.Generation, SizeText(b), CauseText(b.Cause))
	case events.RoundParticipantsSet:
		return fmt.Sprintf("round %d has %s with %s: %s", b.Round, english.Plural(len(b.Nodes), "node"), english.Plural(len(b.Places), "place"), b.Reason)
	case events.RoundClosed:
		return b.Reason
	case events.WorkerStarted:
		return fmt.Sprintf("%s pid %d attempt %d", b.Place, b.PID, b.Attempt)
	case events.WorkerReady:
		text := fmt.Sprintf("%s r%d %s step %d", b.Place, b.Rank, b.Generation, b.Step)
		if b.Step == 0 {
			text = fmt.Sprintf("%s r%d %s started, no step reported", b.Place, b.Rank, b.Generation)
		}
		if c := b.Checkpoint; c != nil {
			text += fmt.Sprintf(", from the checkpoint of step %d", c.Step)
		}
		return text
	case events.WorkerHashed:
		return fmt.Sprintf("%s step %d: %s", b.Place, b.Step, b.Hash)
	case events.WorkerDone:
		return fmt.Sprintf("%s step %d", b.Place, b.Step)
	case events.WorkerExited:
		return fmt.Sprintf("%s %s %s", b.Place, b.Generation, ExitText(b))
	case events.IncidentOpened:
		return fmt.Sprintf("#%d after %s: %s", b.Incident, b.From, CauseText(b.Cause))
	case events.IncidentClosed:
		return IncidentText(b)
	case events.NodeQuarantined:
		return fmt.Sprintf("%s kept out until %s: %s", slotText(b.Slot), b.Until.UTC().Format("2 Jan 15:04:05 UTC"), b.Reason)
	case events.NodeReleased:
		return slotText(b.Slot) + " " + b.Reason
	case events.NodeRejected:
		return fieldErrorsText(b.Errors)
	case events.NodeEvent:
		return nodeText(b.Fact())
	}
	return ""
}

// WaitText formats a wait: waits 30s before attempt 12 of 21.
func WaitText(ms float64, a events.Attempts) string {
	text := fmt.Sprintf("waits %s before attempt %d", MS(ms), a.Attempt)
	if a.Of > 0 {
		text += fmt.Sprintf(" of %d", a.Of)
	}
	return text
}

// fieldErrorsText formats the reasons of a refusal; there may be none, because any client can
// publish the fact.
func fieldErrorsText(all []spec.FieldError) string {
	if err := errcode.Refuse(all); err != nil {
		return err.Error()
	}
	return "refused without a reason"
}

func nodeText(n events.NodeFact) string {
	s := english.Plural(n.Slots, "slot")
	if n.Address != "" {
		s += " at " + n.Address
	}
	if n.Reason != "" {
		s += ": " + n.Reason
	}
	return s
}

func slotText(s *ident.Slot) string {
	if s == nil {
		return "the whole node:"
	}
	return fmt.Sprintf("slot %d:", *s)
}

// WorkersText formats a range of workers: 2-4 workers, 1 worker.
func WorkersText(w spec.Workers) string {
	if w.Min == w.Max {
		return english.Plural(w.Max, "worker")
	}
	return WorkersRange(w) + " workers"
}

// TrainingText formats how many train of those that are wanted: 3 of 2-4 workers, 1 of 1 worker.
// More than that train until the commit at which some leave: 8 workers, 6 wanted.
func TrainingText(n int, w spec.Workers) string {
	if n > w.Max {
		return fmt.Sprintf("%s, %s wanted", english.Plural(n, "worker"), WorkersRange(w))
	}
	return fmt.Sprintf("%d of %s", n, WorkersText(w))
}

// MembersText formats how many workers of a job train or, once it has ended, did in its last
// generation: 3 of 4 workers; 3 of 4 workers last.
func MembersText(v events.JobView) string {
	switch n := LastWorld(v); {
	case !v.State.Terminal():
		return TrainingText(Members(v), v.Spec.Workers)
	case n > 0:
		return TrainingText(n, v.Spec.Workers) + " last"
	}
	return "no worker has trained"
}

// WorkersRange formats a range: 2-4, or 4.
func WorkersRange(w spec.Workers) string {
	if w.Min == w.Max {
		return fmt.Sprint(w.Min)
	}
	return fmt.Sprintf("%d-%d", w.Min, w.Max)
}

// placesShown bounds a list of slots in a line.
const placesShown = 8

func placesText(all []ident.Place) string {
	if len(all) == 0 {
		return "nothing"
	}
	if len(all) > placesShown {
		return english.Plural(len(all), "place")
	}
	parts := make([]string, len(all))
	for i, p := range all {
		parts[i] = p.String()
	}
	return strings.Join(parts, " ")
}

func membersText(all []tables.Member) string {
	places := make([]ident.Place, len(all))
	for i, m := range all {
		places[i] = m.Place
	}
	return placesText(places)
}

// CountedFailureText describes a counted failure: kind, worker, step, reason.
func CountedFailureText(c events.CountedFailure) string {
	s := string(c.Kind)
	if c.Place != nil {
		s += " of " + c.Place.String()
	}
	if c.Rank >= 0 {
		s += fmt.Sprintf(" (r%d)", c.Rank)
	}
	if c.Generation > 0 {
		s += " in " + c.Generation.String()
	}
	if c.Step > 0 {
		s += fmt.Sprintf(" after step %d", c.Step)
	}
	if c.Detail != "" {
		s += ": " + c.Detail
	}
	return s
}

// CauseText describes what started an incident or a generation.
func CauseText(c events.Cause) string {
	s := string(c.Kind)
	switch {
	case c.Place != nil && c.Rank >= 0 && !c.Kind.Planned():
		s += fmt.Sprintf(" r%d on %s", c.Rank, *c.Place)
	case c.Place != nil:
		s += " " + c.Place.String()
	case c.Node != "":
		s += " " + string(c.Node)
	}
	if c.Detail != "" {
		s += ": " + c.Detail
	}
	return s
}

// ExitText describes how a process ended, and whether it was asked to.
func ExitText(w events.WorkerExited) string {
	s := w.Detail
	if s == "" {
		s = fmt.Sprintf("exit %d", w.ExitCode)
		if w.Signal != "" {
			s = w.Signal
		}
	}
	if w.OOM && w.Detail == "" {
		s += ", out of memory" // a detail includes it
	}
	if w.Asked {
		s += " (asked to stop)"
	}
	return s
}

// IncidentText is a closed incident in one line, with its phases.
func IncidentText(i events.IncidentClosed) string {
	s := fmt.Sprintf("#%d %s", i.Incident, CauseText(i.Cause))
	if i.To == 0 {
		return s + " · the job ended with it"
	}
	return fmt.Sprintf("%s · %s → %s · %s · %s · %s", s, i.From, i.To, MS(i.TotalMS), PhasesText(i.Phases), LostText(i))
}

// SilenceText describes for how long no step was observed before an incident; "" = one was, until
// it began.
func SilenceText(i events.IncidentClosed) string {
	switch {
	case i.SilenceMS > 0:
		return "no step was observed for " + MS(i.SilenceMS) + " before"
	case i.SilenceUnknown:
		return "for how long nobody had observed it before is unknown"
	}
	return ""
}

// LostText describes how many steps an incident has lost, as far as that is known, and the silence
// before it.
func LostText(i events.IncidentClosed) string {
	text := "steps lost unknown"
	if i.StepsLost != nil {
		text = english.Plural(int(*i.StepsLost), "step") + " lost"
		if i.AtLeast {
			text = "at least " + text
		}
	}
	if i.Started {
		text = "processes started, no step reported · " + text
	}
	if silence := SilenceText(i); silence != "" {
		text += " · " + silence
	}
	return text
}

// PhasesText lists the phases that took time.
func PhasesText(p events.Phases) string {
	var parts []string
	for _, v := range PhasesOf(p) {
		if v.MS >= 0.5 {
			parts = append(parts, v.Name+" "+MS(v.MS))
		}
	}
	if len(parts) == 0 {
		return "under 1ms"
	}
	return strings.Join(parts, ", ")
}

// Phase is a phase of an incident, with its length in milliseconds.
type Phase struct {
	Name string
	MS   float64
}

// PhasesOf returns the phases of an incident in their order.
func PhasesOf(p events.Phases) []Phase {
	return []Phase{{"notice", p.Notice}, {"abort", p.Abort}, {"judge", p.Judge}, {"back-off", p.BackOff}, {"regroup", p.Regroup}, {"sync", p.Sync}, {"first step", p.FirstStep}}
}

// SizeText says how many workers a generation has.
func SizeText(b events.RoundSealed) string {
	text := english.Plural(len(b.Members), "worker")
	if n := len(b.Spares); n > 0 {
		text += fmt.Sprintf(" and %d spare", n)
	}
	return text
}
