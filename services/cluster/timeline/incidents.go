package timeline

import (
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// Incident is an incident on a timeline.
type Incident struct {
	Incident int       `json:"incident"` // from 1 within the job
	Cause    string    `json:"cause"`    // in a sentence
	Planned  bool      `json:"planned,omitempty"`
	From     time.Time `json:"from"`           // of an open one: when it was opened
	To       time.Time `json:"to"`             // of an open one: the end of the timeline
	Open     bool      `json:"open,omitempty"` // it goes on
	Phases   []Phase   `json:"phases"`         // in their order, those that took time; none of an open one
}

// Phase is a phase of an incident.
type Phase struct {
	Phase string    `json:"phase"` // as in view.PhasesText
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
}

func (t *Timeline) incidentOpened(at time.Time, b events.IncidentOpened) {
	t.putIncident(Incident{Incident: b.Incident, Cause: view.CauseText(b.Cause), Planned: b.Cause.Kind.Planned(), From: at, To: at, Open: true, Phases: []Phase{}})
}

// incidentClosed handles an incident that was closed at a time: its phases end there.
func (t *Timeline) incidentClosed(at time.Time, b events.IncidentClosed) {
	span := func(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
	i := Incident{Incident: b.Incident, Cause: view.CauseText(b.Cause), Planned: b.Cause.Kind.Planned(), To: at, Phases: []Phase{}}
	end := at
	for _, p := range slices.Backward(view.PhasesOf(b.Phases)) {
		begin := latest(end.Add(-max(0, span(p.MS))), t.Start)
		if begin.Before(end) {
			i.Phases = append(i.Phases, Phase{p.Name, begin, end})
		}
		end = begin
	}
	slices.Reverse(i.Phases)
	i.From = end
	t.putIncident(i)
}

func (t *Timeline) putIncident(i Incident) {
	at, found := slices.BinarySearchFunc(t.Incidents, i.Incident, func(x Incident, n int) int { return x.Incident - n })
	if found {
		t.Incidents[at] = i
		return
	}
	t.Incidents = slices.Insert(t.Incidents, at, i)
}

// endIncidents makes those that are open last until the end.
func (t *Timeline) endIncidents() {
	for i := range t.Incidents {
		if t.Incidents[i].Open {
			t.Incidents[i].To = t.End
		}
	}
}

// Over reports whether the job had ended.
func (t *Timeline) Over() bool { return t.over }

// UnobservedFrom makes unknown what the workers of a job that has not ended do after a time: nobody
// has heard of it since. The zero time is that of the newest fact.
func (t *Timeline) UnobservedFrom(at time.Time) {
	if t.over {
		return
	}
	if at.IsZero() {
		at = t.Start
		for _, told := range t.factTimes {
			at = latest(at, told)
		}
	}
	for _, l := range t.Incarnations {
		n := len(l.Stretches)
		if n == 0 || !l.Stretches[n-1].To.Equal(t.End) || l.Failure != "" {
			continue // it had ended before
		}
		switch last := &l.Stretches[n-1]; {
		case !at.Before(t.End):
		case at.After(last.From):
			last.To = at
			l.Stretches = append(l.Stretches, Stretch{Unobserved, at, t.End})
		default:
			last.Doing = Unobserved
		}
	}
}
