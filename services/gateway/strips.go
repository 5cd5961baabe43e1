package gateway

import (
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/services/cluster/timeline"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// Strip is the course of a job in short, as a row of the overview.
type Strip struct {
	Job     ident.JobID     `json:"job"`
	State   events.JobState `json:"state"`
	From    time.Time       `json:"from"`             // when it was submitted
	Trained time.Time       `json:"trained,omitzero"` // when its first generation was sealed, of those that are kept
	Seen    time.Time       `json:"seen,omitzero"`    // when its newest step was heard, if that is too long ago to know what it does; else absent
	Ended   time.Time       `json:"ended,omitzero"`
	Goodput *float64        `json:"goodput"` // null = unknown
	Step    uint64          `json:"step"`
	Marks   []Mark          `json:"marks"` // by time
}

// Mark is an incident or a planned change in a Strip.
type Mark struct {
	Incident int              `json:"incident"`
	Kind     events.CauseKind `json:"kind"`
	Planned  bool             `json:"planned"`
	From     time.Time        `json:"from"`
	To       time.Time        `json:"to,omitzero"` // when training went on; absent = it is open, or the job ended
}

// strips is the number of rows of the overview.
const strips = 24

// stripsOf returns those of the jobs that were active last: those that go on, then those that ended
// last.
func (g *Gateway) stripsOf(jobs []events.JobView, now time.Time) []Strip {
	newest := slices.Clone(jobs)
	slices.SortStableFunc(newest, func(a, b events.JobView) int {
		if a.State.Terminal() != b.State.Terminal() {
			if b.State.Terminal() {
				return -1
			}
			return 1
		}
		if a.State.Terminal() {
			return b.Ended.Compare(a.Ended)
		}
		return b.Submitted.Compare(a.Submitted)
	})
	all := []Strip{}
	for _, v := range newest[:min(len(newest), strips)] {
		goodput, _ := view.Goodput(v, now)
		s := Strip{Job: v.Job, State: v.State, From: v.Submitted, Seen: unheard(v, now), Ended: v.Ended, Goodput: goodput, Step: v.Step, Marks: marks(v)}
		if len(v.Generations) > 0 {
			s.Trained = v.Generations[0].Sealed
		}
		all = append(all, s)
	}
	return all
}

// unheard returns when the newest step of a job that goes on was heard, if that was too long ago
// for it to be known what it does.
func unheard(v events.JobView, now time.Time) time.Time {
	if v.State.Terminal() || v.Step == 0 || len(v.Generations) == 0 {
		return time.Time{}
	}
	stepTime := v.StepAt.Sub(v.Generations[0].Sealed) / time.Duration(min(v.Step, 1<<30))
	if now.Sub(v.StepAt) <= timeline.Silence(now.Sub(v.Submitted), stepTime) {
		return time.Time{}
	}
	return v.StepAt
}

// marks returns what has happened to a job, apart from its start. An incident began before the
// generation after it was sealed, by what it took until its members were decided and by the silence
// before, and ended with the first good step.
func marks(v events.JobView) []Mark {
	sealed := map[ident.Generation]time.Time{}
	for _, g := range v.Generations {
		sealed[g.Generation] = g.Sealed
	}
	ms := func(x float64) time.Duration { return time.Duration(x * float64(time.Millisecond)) }
	all := []Mark{}
	for _, i := range v.Incidents {
		at, p := sealed[i.To], i.Phases
		if i.To == 0 { // the job ended in it
			at = v.Ended
		}
		if i.Cause.Kind == events.CauseStart || at.IsZero() { // or its generation is not kept any more
			continue
		}
		m := Mark{
			Incident: i.Incident, Kind: i.Cause.Kind, Planned: i.Cause.Kind.Planned(),
			From: at.Add(-ms(p.Notice + p.Abort + p.Judge + p.BackOff + i.SilenceMS)),
		}
		if i.To != 0 {
			m.To = at.Add(ms(p.Regroup + p.Sync + p.FirstStep))
		}
		all = append(all, m)
	}
	if o := v.OpenIncident; o != nil && o.Cause.Kind != events.CauseStart && !v.StepAt.IsZero() {
		all = append(all, Mark{Incident: o.Incident, Kind: o.Cause.Kind, Planned: o.Cause.Kind.Planned(), From: v.StepAt})
	}
	return all
}
