package screen

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// Doing is what a worker does for a stretch of time.
type Doing string

// What a worker may be doing.
const (
	Gathering Doing = "rendezvous" // started, or waiting for the next generation
	Restoring Doing = "restore"    // in a generation, no good step yet
	Training  Doing = "training"
)

// Stretch is a time in which a worker did one thing.
type Stretch struct {
	Doing Doing     `json:"doing"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
}

// Life is one row of a timeline: one life of a place.
type Life struct {
	Place     events.Place `json:"place"`
	Attempt   int          `json:"attempt"`
	Rank      int          `json:"rank"` // the last it had; -1 = none
	Stretches []Stretch    `json:"stretches"`
	Ended     time.Time    `json:"ended,omitzero"`
	Failure   string       `json:"failure,omitempty"`
	alive     bool
}

// MarshalJSON writes null for a rank that it never had.
func (l Life) MarshalJSON() ([]byte, error) {
	type plain Life
	out := struct {
		plain
		Rank *int `json:"rank"`
	}{plain: plain(l)}
	if l.Rank >= 0 {
		out.Rank = &l.Rank
	}
	return json.Marshal(out)
}

// Sealed marks a generation on a timeline.
type Sealed struct {
	Generation events.Generation `json:"generation"`
	World      int               `json:"world"`
	Time       time.Time         `json:"time"`
}

// Timeline is what each worker of a job did when. Times are those of the speakers' clocks: good
// enough to look at.
type Timeline struct {
	Job         events.JobID `json:"job"`
	Start       time.Time    `json:"start"`
	End         time.Time    `json:"end"`
	Lives       []*Life      `json:"lives"` // by first appearance within place, places in order
	Generations []Sealed     `json:"generations"`

	inProcess bool
	members   map[lifeKey]int       // rank in the newest generation
	steps     map[events.Place]bool // recovery by restart: a process there has reported a step
	over      bool
}

type lifeKey struct {
	place   events.Place
	attempt int
}

// NewTimeline makes the timeline of a job from its facts in order; now is the end of one that has
// not ended.
func NewTimeline(facts []events.Event, now time.Time) *Timeline {
	t := &Timeline{Lives: []*Life{}, Generations: []Sealed{}, members: map[lifeKey]int{}, steps: map[events.Place]bool{}}
	for _, e := range facts {
		at := e.Time
		if x, ok := e.Body.(events.WorkerExited); ok {
			at = at.Add(-time.Duration(x.AgeMS * float64(time.Millisecond)))
		}
		if t.Start.IsZero() {
			t.Start, t.End, t.Job = at, at, events.JobID(e.Entity)
		}
		if at.Before(t.Start) {
			at = t.Start
		}
		if at.After(t.End) {
			t.End = at
		}
		t.take(at, e.Body)
	}
	if !t.over && now.After(t.End) {
		t.End = now
	}
	for _, l := range t.Lives {
		l.stop(t.End)
	}
	slices.SortStableFunc(t.Lives, func(a, b *Life) int {
		return cmp.Or(cmp.Compare(a.Place.Node, b.Place.Node), cmp.Compare(a.Place.Slot, b.Place.Slot), cmp.Compare(a.Attempt, b.Attempt))
	})
	return t
}

func (t *Timeline) take(at time.Time, b events.Body) {
	switch b := b.(type) {
	case events.JobSubmitted:
		t.inProcess = b.Spec.Recovery == spec.RecoveryInProcess
	case events.WorkerStarted:
		doing := Gathering
		if _, member := t.members[lifeKey{b.Place, b.Attempt}]; member {
			doing = Restoring
		}
		t.life(b.WorkerRef).begin(doing, at)
	case events.WorkerReady:
		l := t.life(b.WorkerRef)
		l.Rank = b.Rank
		if !t.inProcess && b.Step == 0 && t.steps[b.Place] {
			return // its process runs; the one before has reported steps, so this one trains when it reports one
		}
		if b.Step > 0 {
			t.steps[b.Place] = true
		}
		l.begin(Training, at)
	case events.WorkerExited:
		l := t.life(b.WorkerRef)
		l.stop(at)
		if b.Failed(t.inProcess) {
			l.Failure, l.Ended = cmp.Or(b.Signal, b.Detail), at
		}
	case events.JobRespawnDenied:
		t.blamed(at, b)
	case events.RoundOpened:
		t.opened(at, b)
	case events.RoundSealed:
		t.sealed(at, b)
	case events.JobSucceeded, events.JobFailed, events.JobStopped:
		t.over = true
		for _, l := range t.Lives {
			l.stop(at)
		}
	}
}

// blamed: a worker of which nothing was heard any more. What looked like waiting for the others was
// its end.
func (t *Timeline) blamed(at time.Time, b events.JobRespawnDenied) {
	for _, l := range t.Lives {
		if l.Place != b.Place || !l.alive {
			continue
		}
		if n := len(l.Stretches); n > 1 && l.Stretches[n-1].Doing == Gathering {
			at = l.Stretches[n-1].From
			l.Stretches = l.Stretches[:n-1]
		}
		l.alive, l.Ended, l.Failure = false, at, "lost"
		l.Stretches[len(l.Stretches)-1].To = at
	}
}

// opened: members of a planned change train on until they are asked at their commit.
func (t *Timeline) opened(at time.Time, b events.RoundOpened) {
	for _, l := range t.Lives {
		switch {
		case b.Cause.Kind == events.CauseNodeLost && l.Place.Node == b.Cause.Node && l.alive:
			l.stop(at)
			l.Failure = "node lost"
		case l.alive && !b.Cause.Kind.Planned():
			l.begin(Gathering, at)
		}
	}
}

func (t *Timeline) sealed(at time.Time, b events.RoundSealed) {
	t.Generations = append(t.Generations, Sealed{b.Generation, len(b.Members), at})
	t.members = map[lifeKey]int{}
	for _, m := range b.Members {
		k := lifeKey{m.Place, m.Attempt}
		t.members[k] = m.Rank
		for _, l := range t.Lives {
			if l.alive && l.Place == k.place && l.Attempt == k.attempt {
				l.Rank = m.Rank
				l.begin(Restoring, at)
			}
		}
	}
}

func (t *Timeline) life(r events.WorkerRef) *Life {
	for _, l := range t.Lives {
		if l.Place == r.Place && l.Attempt == r.Attempt {
			return l
		}
	}
	l := &Life{Place: r.Place, Attempt: r.Attempt, Rank: -1, Stretches: []Stretch{}}
	if rank, ok := t.members[lifeKey{r.Place, r.Attempt}]; ok {
		l.Rank = rank
	}
	t.Lives = append(t.Lives, l)
	return l
}

func (l *Life) begin(d Doing, at time.Time) {
	if l.alive && l.Stretches[len(l.Stretches)-1].Doing == d {
		return
	}
	l.stop(at)
	l.Stretches = append(l.Stretches, Stretch{d, at, at})
	l.alive, l.Ended = true, time.Time{}
}

func (l *Life) stop(at time.Time) {
	if l.alive {
		l.Stretches[len(l.Stretches)-1].To = at
		l.alive, l.Ended = false, at
	}
}
