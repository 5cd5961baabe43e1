// Package timeline says what each worker of a job did when, as far as that was observed, and draws
// it: as a picture in SVG, and as trace events for ui.perfetto.dev, with a row for each slot.
package timeline

import (
	"cmp"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// Doing is the activity of a worker.
type Doing string

// Activities of a worker.
const (
	Rendezvous Doing = "rendezvous" // started, or waiting for the next generation
	Restoring  Doing = "restore"    // in a generation, no good step yet
	Training   Doing = "training"
	Running    Doing = "running"    // its process runs; the program reports no steps
	Unobserved Doing = "unobserved" // nobody has observed whether it trained
)

// Stretch is a period with one activity.
type Stretch struct {
	Doing Doing     `json:"doing"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
}

// Incarnation is one row of a timeline: one worker process in a slot.
type Incarnation struct {
	Place     ident.Place `json:"place"`
	Attempt   int         `json:"attempt"`
	Rank      ident.Rank  `json:"rank"` // the last one
	Stretches []Stretch   `json:"stretches"`
	Ended     time.Time   `json:"ended,omitzero"`
	Failure   string      `json:"failure,omitempty"`
	alive     bool
}

// Sealed marks a generation on a timeline.
type Sealed struct {
	Generation ident.Generation `json:"generation"`
	World      int              `json:"world"`
	Time       time.Time        `json:"time"`
}

// Timeline is the activity of each worker of a job over time. Times are by the publishers' clocks,
// which is accurate enough for drawing.
type Timeline struct {
	Job          ident.JobID    `json:"job"`
	Start        time.Time      `json:"start"`
	End          time.Time      `json:"end"`
	Incarnations []*Incarnation `json:"incarnations"` // by slot, then by first appearance
	Generations  []Sealed       `json:"generations"`
	Incidents    []Incident     `json:"incidents"` // by number

	inProcess bool
	members   map[incarnationKey]ident.Rank // rank in the newest generation
	steps     map[ident.Place]bool          // restart recovery: a process there has reported a step
	factTimes []time.Time                   // when each fact was
	observed  observation
	over      bool
}

type incarnationKey struct {
	place   ident.Place
	attempt int
}

// New builds the timeline of a job from its facts in order; now is the end of a job that
// has not ended.
func New(facts []events.Event, now time.Time) *Timeline {
	t := &Timeline{Incarnations: []*Incarnation{}, Generations: []Sealed{}, Incidents: []Incident{}, members: map[incarnationKey]ident.Rank{}, steps: map[ident.Place]bool{}}
	for _, e := range facts {
		at := e.Time
		if x, ok := e.Body.(events.WorkerExited); ok {
			at = at.Add(-time.Duration(x.AgeMS * float64(time.Millisecond)))
		}
		if t.Start.IsZero() {
			t.Start, t.End, t.Job = at, at, ident.JobID(e.Entity)
		}
		if at.Before(t.Start) {
			at = t.Start
		}
		if at.After(t.End) {
			t.End = at
		}
		t.take(at, e.Body)
		t.factTimes = append(t.factTimes, at)
	}
	if !t.over && now.After(t.End) {
		t.End = now
	}
	t.sinceReported(t.End)
	for _, l := range t.Incarnations {
		l.stop(t.End)
	}
	t.endIncidents()
	slices.SortStableFunc(t.Incarnations, func(a, b *Incarnation) int {
		return cmp.Or(cmp.Compare(a.Place.Node, b.Place.Node), cmp.Compare(a.Place.Slot, b.Place.Slot), cmp.Compare(a.Attempt, b.Attempt))
	})
	return t
}

func (t *Timeline) take(at time.Time, b events.Body) {
	switch b := b.(type) {
	case events.JobSubmitted:
		t.inProcess = b.Spec.Recovery == spec.RecoveryInProcess
	case events.WorkerStarted:
		doing := Rendezvous
		if _, member := t.members[incarnationKey{b.Place, b.Attempt}]; member {
			doing = Restoring
		}
		t.incarnation(b.WorkerRef).begin(doing, at)
	case events.WorkerReady:
		l := t.incarnation(b.WorkerRef)
		l.Rank = b.Rank
		if !t.inProcess && b.Step == 0 && t.steps[b.Place] {
			// the earlier process has reported steps, so this one trains from its first report on
			return
		}
		if b.Step > 0 {
			t.steps[b.Place] = true
		}
		l.begin(Training, at)
		t.reported(at, b.Generation, b.Step)
	case events.JobProgressed:
		t.reported(at, b.Generation, b.Step)
	case events.WorkerExited:
		l := t.incarnation(b.WorkerRef)
		l.stop(at)
		if b.Failed(t.inProcess) {
			l.Failure, l.Ended = cmp.Or(b.Signal, b.Detail), at
		}
	case events.JobRespawnDenied:
		t.respawnDenied(at, b)
	case events.RoundOpened:
		t.opened(at, b)
	case events.RoundSealed:
		t.sealed(at, b)
	case events.IncidentOpened:
		t.incidentOpened(at, b)
	case events.IncidentClosed:
		t.incidentClosed(at, b)
		to := at.Add(-time.Duration(b.TotalMS * float64(time.Millisecond)))
		switch {
		case b.SilenceMS > 0:
			t.unobserved(to.Add(-time.Duration(b.SilenceMS*float64(time.Millisecond))), to, t.Incarnations)
		case b.SilenceUnknown: // since the last thing that is known
			t.unobserved(t.lastBefore(to), to, t.Incarnations)
		}
	case events.JobSucceeded, events.JobFailed, events.JobStopped:
		t.over = true
		for _, l := range t.Incarnations {
			l.stop(at)
		}
	}
}

// lastBefore returns when a fact was told last before a time; the start if none was.
func (t *Timeline) lastBefore(at time.Time) time.Time {
	last := t.Start
	for _, factTimes := range t.factTimes {
		if factTimes.Before(at) && factTimes.After(last) {
			last = factTimes
		}
	}
	return last
}

// unobserved cuts a time out of the training of some: nobody has observed a step in it.
func (t *Timeline) unobserved(from, to time.Time, of []*Incarnation) {
	for _, l := range of {
		var all []Stretch
		for i, s := range l.Stretches {
			end := s.To
			if l.alive && i == len(l.Stretches)-1 {
				end = to // it goes on
			}
			if s.Doing != Training || !s.From.Before(to) || !end.After(from) {
				all = append(all, s)
				continue
			}
			if s.From.Before(from) {
				all = append(all, Stretch{Training, s.From, from})
			}
			all = append(all, Stretch{Unobserved, latest(s.From, from), earliest(end, to)})
			if end.After(to) {
				all = append(all, Stretch{Training, to, end})
			}
		}
		l.Stretches = all
	}
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// respawnDenied handles a worker that has not reported any more: its last period, which looked like
// waiting for the others, was its end.
func (t *Timeline) respawnDenied(at time.Time, b events.JobRespawnDenied) {
	for _, l := range t.Incarnations {
		if l.Place != b.Place || !l.alive {
			continue
		}
		if n := len(l.Stretches); n > 1 && l.Stretches[n-1].Doing == Rendezvous {
			at = l.Stretches[n-1].From
			l.Stretches = l.Stretches[:n-1]
		}
		l.alive, l.Ended, l.Failure = false, at, "lost"
		l.Stretches[len(l.Stretches)-1].To = at
	}
}

// opened handles a new round: members of a planned change train on until their commit.
func (t *Timeline) opened(at time.Time, b events.RoundOpened) {
	for _, l := range t.Incarnations {
		switch {
		case b.Cause.Kind == events.CauseNodeLost && l.Place.Node == b.Cause.Node && l.alive:
			l.stop(at)
			l.Failure = "node lost"
		case l.alive && !b.Cause.Kind.Planned():
			l.begin(Rendezvous, at)
		}
	}
}

func (t *Timeline) sealed(at time.Time, b events.RoundSealed) {
	t.Generations = append(t.Generations, Sealed{b.Generation, len(b.Members), at})
	t.observed.at, t.observed.generation = at, b.Generation
	t.members = map[incarnationKey]ident.Rank{}
	for _, m := range b.Members {
		t.members[incarnationKey{m.Place, m.Attempt}] = m.Rank
	}
	for _, l := range t.Incarnations {
		if r, member := t.members[incarnationKey{l.Place, l.Attempt}]; member && l.alive {
			l.Rank = r
			l.begin(Restoring, at)
		}
	}
}

func (t *Timeline) incarnation(r tables.WorkerRef) *Incarnation {
	for _, l := range t.Incarnations {
		if l.Place == r.Place && l.Attempt == r.Attempt {
			return l
		}
	}
	l := &Incarnation{Place: r.Place, Attempt: r.Attempt, Rank: ident.NoRank, Stretches: []Stretch{}}
	if rank, ok := t.members[incarnationKey{r.Place, r.Attempt}]; ok {
		l.Rank = rank
	}
	t.Incarnations = append(t.Incarnations, l)
	return l
}

func (l *Incarnation) begin(d Doing, at time.Time) {
	if l.alive && l.Stretches[len(l.Stretches)-1].Doing == d {
		return
	}
	l.stop(at)
	l.Stretches = append(l.Stretches, Stretch{d, at, at})
	l.alive, l.Ended = true, time.Time{}
}

func (l *Incarnation) stop(at time.Time) {
	if l.alive {
		for n := len(l.Stretches); n > 1 && l.Stretches[n-1].From.After(at); n-- { // it was over before that began
			l.Stretches = l.Stretches[:n-1]
		}
		l.Stretches[len(l.Stretches)-1].To = at
		l.alive, l.Ended = false, at
	}
}
