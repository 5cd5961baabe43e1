package screen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// Story prints the progress of a running job: some facts are worth a line. It records the rank of
// each worker.
type Story struct {
	Palette
	Generation ident.Generation // the newest sealed one
	World      int              // its workers
	recoveries int              // from failures
	tookMS     float64          // the last of them
	size       string           // the same in words, with its spares

	spec       spec.Job
	ranks      map[ident.Place]ident.Rank
	waiting    string
	checkpoint *tables.Commit // with which the generation has begun; nil = with none
}

// NewStory returns a story, which needs all facts of one job in order.
func NewStory(p Palette) *Story { return &Story{Palette: p, ranks: map[ident.Place]ident.Rank{}} }

// Spec returns the job's specification, as far as facts have told it.
func (s *Story) Spec() spec.Job { return s.spec }

// Line returns the line for a fact, or "".
func (s *Story) Line(b events.Body) string {
	switch b := b.(type) {
	case events.JobSubmitted:
		s.spec = b.Spec
	case events.PlacementWaiting:
		if b.Reason != s.waiting {
			s.waiting = b.Reason
			return s.Warn("… waiting") + ": " + b.Reason
		}
	case events.PlacementSet:
		s.waiting = ""
		s.spec.Workers = b.Workers
	case events.RoundSealed:
		return s.generation(b)
	case events.WorkerReady:
		if b.Checkpoint != nil && b.Generation == s.Generation {
			s.checkpoint = b.Checkpoint
		}
	case events.WorkerExited:
		return s.died(b)
	case events.JobStalled:
		return s.Warn("! "+b.Generation.String()+" stands still") + ": " + b.Detail
	case events.JobFailureCounted:
		if b.Kind == events.FailureHang { // a hung worker has no exit fact
			return s.Bad("✘ "+s.who(b.Place)+" hangs") + ": " + b.Detail
		}
	case events.JobDelayed:
		return s.Warn("… "+s.who(b.Place)+" "+view.WaitText(b.WaitMS, b.Attempts)) + ": it died soon after its start"
	case events.RoundDelayed:
		return s.Warn("… "+view.WaitText(b.WaitMS, b.Attempts)) + fmt.Sprintf(": %s in a row were lost without progress", english.Plural(b.NoProgress, "generation"))
	case events.JobRespawned:
		return s.Good("+") + fmt.Sprintf(" %s starts again (attempt %d)", s.who(b.Place), b.Attempt)
	case events.JobRespawnDenied:
		return s.Warn("-") + fmt.Sprintf(" %s is not started again: %s", s.who(b.Place), b.Reason)
	case events.JobScaled:
		return s.Head("~") + " scaled to " + view.WorkersText(b.Workers)
	case events.JobStopping:
		return s.Warn("■ stopping") + ": " + b.Reason
	case events.IncidentClosed:
		return s.recovered(b)
	}
	return ""
}

// Summary is the newest generation, how many workers it has of those that are wanted, and the
// recoveries so far, in a few words: g3 · 4 of 6 workers · 2 recoveries (last 1.8s).
func (s *Story) Summary() (begin, end string) {
	workers := english.Plural(s.World, "worker")
	if most := s.spec.Workers.Max; s.World < most {
		workers = fmt.Sprintf("%d of %s", s.World, english.Plural(most, "worker"))
	}
	if s.recoveries > 0 {
		end = fmt.Sprintf(" · %s (last %s)", english.Plural(s.recoveries, "recovery"), view.MS(s.tookMS))
	}
	return s.Generation.String() + " · " + workers, end
}

// generation returns the line for the first generation; a later one is reported when it makes
// steps.
func (s *Story) generation(b events.RoundSealed) string {
	s.Generation, s.World, s.checkpoint = b.Generation, len(b.Members), nil
	s.size = view.SizeText(b)
	s.ranks = map[ident.Place]ident.Rank{}
	for _, m := range b.Members {
		s.ranks[m.Place] = m.Rank
	}
	if b.From != 0 || b.Generation > 1 {
		if s.spec.Recovery == spec.RecoveryInProcess && b.From != 0 && !anyHolds(b.Members) {
			return s.Warn("! "+b.Generation.String()) + ": nobody who held the training state is left: it begins again"
		}
		return ""
	}
	return s.head(b.Generation) + fmt.Sprintf(" %s agreed in %s (min %d, max %d)",
		s.size, view.MS(b.JudgeMS), s.spec.Workers.Min, s.spec.Workers.Max)
}

func anyHolds(all []tables.Member) bool {
	return slices.ContainsFunc(all, func(m tables.Member) bool { return m.Commit.Generation > 0 })
}

func (s *Story) head(g ident.Generation) string { return s.Head(g.String() + " ▸") }

func (s *Story) died(b events.WorkerExited) string {
	if x := b.Exception; b.Asked && x != nil && !x.Peer { // it failed before it was asked to end
		return s.Bad("✘ "+s.who(b.Place)+" failed") + ": " + view.ExitText(b)
	}
	if !b.Failed(s.spec.Recovery == spec.RecoveryInProcess) {
		return ""
	}
	if x := b.Exception; x != nil && x.Peer { // the peer's own line has the cause
		return s.Warn("· "+s.who(b.Place)+" ended because it lost a peer") + ": " + view.ExitText(b)
	}
	memory := ""
	if b.Signal == "SIGKILL" && !b.OOM {
		memory = ", not out of memory"
	}
	return s.Bad("✘ "+s.who(b.Place)+" died") + ": " + view.ExitText(b) + memory
}

func (s *Story) who(p ident.Place) string {
	if r, ok := s.ranks[p]; ok {
		return fmt.Sprintf("r%d on %s", r, p)
	}
	return p.String()
}

func (s *Story) recovered(b events.IncidentClosed) string {
	if b.To == 0 {
		return ""
	}
	if !b.Cause.Kind.Planned() {
		s.recoveries++
		s.tookMS = b.TotalMS
	}
	parts := []string{s.head(b.To) + " " + s.size}
	switch {
	case b.Started: // no step was reported
		parts[0] += " started again after " + view.MS(b.TotalMS) + " (" + view.PhasesText(b.Phases) + ")"
		if b.Cause.Kind.Planned() {
			parts = append(parts, "planned")
		} else {
			parts = append(parts, causeOfNode(b.Cause)...)
		}
		parts = append(parts, "steps lost unknown")
		if silence := view.SilenceText(b); silence != "" {
			parts = append(parts, silence)
		}
		return strings.Join(parts, " · ")
	case b.Cause.Kind.Planned():
		parts = append(parts, "planned", "paused "+view.MS(b.TotalMS))
	default:
		parts = append(parts, causeOfNode(b.Cause)...)
		parts = append(parts, "training again after "+view.MS(b.TotalMS)+" ("+view.PhasesText(b.Phases)+")")
	}
	if c := s.checkpoint; c != nil && b.To == s.Generation {
		parts = append(parts, fmt.Sprintf("from the checkpoint of step %d", c.Step))
	}
	parts = append(parts, view.LostText(b))
	return strings.Join(parts, " · ")
}

// causeOfNode returns the cause of a lost node; the failure of a worker was reported by its exit.
func causeOfNode(c events.Cause) []string {
	if c.Kind == events.CauseNodeLost {
		return []string{string(c.Node) + " lost"}
	}
	if c.Kind == events.CauseWorkerLost || c.Kind == events.CauseLink {
		return []string{view.CauseText(c)}
	}
	return nil
}
