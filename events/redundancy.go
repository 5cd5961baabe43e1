package events

import (
	"time"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
)

// RedundancyReport is what rank 0 of a generation says of how much its job can lose, as its agent
// passes it on with each of its signals. Times are ages, because clocks differ.
type RedundancyReport struct {
	AgeMS       float64        `json:"age_ms"` // since the worker said it
	Commit      tables.Commit  `json:"commit"`
	CommitAgeMS *float64       `json:"commit_age_ms,omitempty"` // nil = unknown
	Losses      int            `json:"losses"`
	NodeLosses  int            `json:"node_losses"`
	Checkpoint  *tables.Commit `json:"checkpoint,omitempty"`
	// CheckpointAgeMS is the time since the writing of it began; nil = unknown.
	CheckpointAgeMS *float64 `json:"checkpoint_age_ms,omitempty"`
}

// Redundancy says how much a job can lose without losing its newest whole commit, one that all
// ranks have agreed on and of which they have everything. It is as rank 0 of a generation has
// reported it; once that generation is over, what can be lost is unknown until the next one
// reports. Times are on the clock of the replica that has received it.
type Redundancy struct {
	Generation  ident.Generation `json:"generation"`
	ReportedAt  time.Time        `json:"reported_at"`
	Commit      tables.Commit    `json:"commit"`
	CommittedAt time.Time        `json:"committed_at,omitzero"` // zero = unknown
	Losses      int              `json:"losses"`                // workers that may be lost, whichever they are
	NodeLosses  int              `json:"node_losses"`           // nodes that may be lost with all of their workers, whichever they are
	// Checkpoint is the newest one that was reported to be written as a whole; nil = unknown.
	Checkpoint *tables.Commit `json:"checkpoint,omitempty"`
	// CheckpointAt is when the writing of it began; zero = unknown.
	CheckpointAt time.Time `json:"checkpoint_at,omitzero"`
}

// maxAge bounds an age that another process has told; a longer one is unknown.
const maxAge = 10 * 365 * 24 * time.Hour

// before returns a time that is some milliseconds before another; zero = unknown.
func before(t time.Time, ms *float64) time.Time {
	if ms == nil || !(*ms >= 0 && *ms <= Milliseconds(maxAge)) {
		return time.Time{}
	}
	return t.Add(-time.Duration(*ms * float64(time.Millisecond)))
}

// RedundancyOf returns what a signal says of its job, as received at a time; nil = nothing.
func RedundancyOf(p Progress, now time.Time) *Redundancy {
	r := p.Redundancy
	if r == nil {
		return nil
	}
	at := before(now, &r.AgeMS)
	if at.IsZero() {
		return nil
	}
	return &Redundancy{
		Generation: p.Generation, ReportedAt: at, Commit: r.Commit, CommittedAt: before(now, r.CommitAgeMS), Losses: r.Losses, NodeLosses: r.NodeLosses,
		Checkpoint: r.Checkpoint, CheckpointAt: before(now, r.CheckpointAgeMS),
	}
}

// NewerRedundancy returns the newer one of what is known of a job and an update; either may be nil,
// and neither is modified. When a commit was made stays as it was first known: a signal that takes
// longer than another must not make it younger, and a worker that has received a commit does not
// know it.
func NewerRedundancy(known, update *Redundancy) *Redundancy {
	switch {
	case update == nil:
		return known
	case known == nil:
		return update
	case update.before(known):
		return known
	}
	r := *update
	if same(r.Commit, known.Commit) && !known.CommittedAt.IsZero() {
		r.CommittedAt = known.CommittedAt
	}
	if r.Checkpoint != nil && known.Checkpoint != nil && same(*r.Checkpoint, *known.Checkpoint) && !known.CheckpointAt.IsZero() {
		r.CheckpointAt = known.CheckpointAt
	}
	return &r
}

// before orders what was said in one generation by its commits first: the clocks of two replicas
// that have received it may differ.
func (r *Redundancy) before(o *Redundancy) bool {
	switch {
	case r.Generation != o.Generation:
		return r.Generation < o.Generation
	case !same(r.Commit, o.Commit):
		return o.Commit.Newer(r.Commit)
	}
	return r.ReportedAt.Before(o.ReportedAt)
}

// Differs reports whether one says something else than another, apart from times.
func (r *Redundancy) Differs(o *Redundancy) bool {
	if r == nil || o == nil {
		return r != o
	}
	return r.Generation != o.Generation || !same(r.Commit, o.Commit) || r.Losses != o.Losses || r.NodeLosses != o.NodeLosses ||
		(r.Checkpoint == nil) != (o.Checkpoint == nil) || r.Checkpoint != nil && !same(*r.Checkpoint, *o.Checkpoint)
}

// same reports whether two commits have one name.
func same(a, b tables.Commit) bool { return !a.Newer(b) && !b.Newer(a) }
