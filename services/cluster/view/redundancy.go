package view

import (
	"fmt"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/english"
)

// Redundancy is events.Redundancy with what is known of it now.
type Redundancy struct {
	events.Redundancy
	Losses     *int `json:"losses"`      // workers that may be lost, whichever they are; null = unknown since the generation changes
	NodeLosses *int `json:"node_losses"` // nodes that may be lost with all of their workers, likewise
}

// RedundancyOf returns how much a job can lose without losing its newest whole commit; nil =
// nothing was reported. How many losses that survives is unknown from a loss, or a change of the
// members, until the next generation reports it.
func RedundancyOf(v events.JobView) *Redundancy {
	if v.Redundancy == nil {
		return nil
	}
	r := Redundancy{Redundancy: *v.Redundancy}
	if unbroken(v, r.Generation) {
		r.Losses, r.NodeLosses = new(r.Redundancy.Losses), new(r.Redundancy.NodeLosses)
	}
	return &r
}

// unbroken reports whether a generation is the newest one, and no member of it is known to be lost.
func unbroken(v events.JobView, g ident.Generation) bool {
	if o := v.OpenIncident; o != nil && o.From >= g && !o.Cause.Kind.Planned() {
		return false
	}
	return g == v.Generation && !slices.ContainsFunc(v.Workers, func(w tables.WorkerView) bool {
		return w.WorkerRef.Generation == g && w.Rank >= 0 && w.State.Ended() && w.State != tables.WorkerStateSucceeded
	})
}

// RedundancyText describes how much a job can lose, on one line. Ages are as of now: the commit may
// not be the newest one any more, which nobody has reported since. "" = it keeps no commits, or
// none now.
func RedundancyText(v events.JobView, now time.Time) string {
	if v.Spec.Recovery != spec.RecoveryInProcess || v.Generation == 0 || v.State.Terminal() {
		return ""
	}
	r := RedundancyOf(v)
	if r == nil {
		return "newest whole commit: unknown, none was reported"
	}
	age := func(at time.Time) string {
		if at.IsZero() {
			return "of unknown age"
		}
		return Span(now.Sub(at)) + " old"
	}
	text := fmt.Sprintf("newest whole commit: step %d, %s%s", r.Commit.Step, age(r.CommittedAt), survives(*r))
	if r.Checkpoint != nil {
		text += fmt.Sprintf("; checkpoint: step %d, %s", r.Checkpoint.Step, age(r.CheckpointAt))
	}
	return text + "; reported " + Span(now.Sub(r.ReportedAt)) + " ago"
}

// survives says what a commit survives.
func survives(r Redundancy) string {
	switch {
	case r.Losses == nil:
		return "; what it survives is unknown until the workers report again"
	case *r.Losses == 0:
		return ", survives no loss"
	case *r.NodeLosses == 0:
		return fmt.Sprintf(", survives the loss of any %s, but of no node", english.Plural(*r.Losses, "worker"))
	}
	return fmt.Sprintf(", survives the loss of any %s, or of any %s", english.Plural(*r.Losses, "worker"), english.Plural(*r.NodeLosses, "node"))
}
