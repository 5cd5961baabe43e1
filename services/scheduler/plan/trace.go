package plan

import (
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
)

// incident takes in that a job has one. Incidents are counted by the registry, so an older one changes nothing.
func (t *turn) incident(b events.IncidentOpened) {
	j := t.s.job(b.Job)
	if j == nil || b.Incident <= j.Incident.Count {
		return
	}
	lost := j.Incident.Lost
	j.Incident = Incident{Count: b.Incident, Trace: b.Trace}
	// The scheduler hears of a lost node when the registry does, so it has mostly decided before the incident is told.
	if lost != nil && slices.Contains(lost.Nodes, b.Cause.Node) {
		t.span(j.ID, b.Trace, lost.Reason, lost.At)
	}
}

func (t *turn) closed(b events.IncidentClosed) {
	if j := t.s.job(b.Job); j != nil && b.Incident >= j.Incident.Count {
		j.Incident = Incident{Count: b.Incident}
	}
}

// traceOf is the trace of what is decided about a job's places now: that of its open incident, of its start, or none but
// the input's.
func (t *turn) traceOf(j *Job, first bool) string {
	switch {
	case j.Incident.Trace != "":
		return j.Incident.Trace
	case first:
		return events.JobTrace(j.ID)
	}
	return ""
}

// span draws a decision.
func (t *turn) span(id events.JobID, parent, reason string, at time.Time) {
	t.d.Spans = append(t.d.Spans, events.Span{
		Service: events.ServiceScheduler, Name: "place", Parent: parent, Start: at, End: at,
		Attributes: map[string]string{"regroup.job.id": string(id), "reason": reason},
	})
}
